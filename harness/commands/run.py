"""`parity run`: the cases of a suite, a line each, and a report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands.options import (
    RUNS,
    SET,
    STORE,
    SUITE,
    TIER,
    print_lines,
    styled,
)
from harness.core.errors import ParityError

if TYPE_CHECKING:
    from harness.core.settings import Settings
    from harness.suite.suite import Suite, Tested

_ADD_PIPELINE = "add [pipeline.text2img]."


@click.command()
@click.argument("cases", nargs=-1)
@SUITE
@RUNS
@STORE
@TIER
@SET
@click.option(
    "--require",
    default="",
    metavar="NAME,...",
    help="Runtimes whose absence is a failure and not a skip.",
)
@click.option(
    "--jobs",
    default=None,
    type=click.IntRange(min=1),
    help="Cases at once; the suite says when left out.",
)
@click.option("--mnn-convert", default="", help="A native MNNConvert to use.")
@click.option(
    "--baseline",
    default="",
    metavar="NAME",
    help="Hold the run against this reviewed baseline too.",
)
@click.option(
    "--isolate",
    is_flag=True,
    help="Run every operator on PyTorch's own inputs too; else where layers part.",
)
@click.option("--e2e", is_flag=True, help="Only end-to-end cases: whole pipelines.")
@click.option("--list", "only_list", is_flag=True, help="List the cases and stop.")
@click.option("--forecast", is_flag=True, help="Say what memory they need, and stop.")
def run(  # one option each
    *,
    cases: tuple[str, ...],
    suite: Path,
    only_list: bool,
    forecast: bool,
    e2e: bool,
    require: str,
    jobs: int | None,
    **words: Any,  # noqa: ANN401  # the settings that are plain text
) -> int:
    """Run CASES of a suite, all when left out: unet, mnn/int8, "unet/*/fp32"."""
    from harness.core.runtime import runtimes
    from harness.core.settings import Settings
    from harness.core.toml_file import did_you_mean
    from harness.report.runs.baseline import find_baseline
    from harness.report.runs.held import baselines_beside
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    chosen = loaded.select(cases)
    if e2e:
        chosen = tuple(case for case in chosen if case in loaded.chains)
        if not chosen:
            ids = ", ".join(chain.id for chain in loaded.chains)
            hint = f" of that name; there are {ids}." if ids else "; " + _ADD_PIPELINE
            msg = f"{suite} has no end-to-end case{hint}"
            raise ParityError(msg)
    if only_list:
        for case in chosen:
            click.echo(case.id)
        return 0
    if forecast:
        from harness.commands.forecast import print_forecast

        print_forecast(loaded, chosen, words["store"])
        return 0
    required = tuple(name for name in require.split(",") if name)
    for name in required:
        if name not in runtimes():
            msg = f"there is no backend {name!r}; {did_you_mean(name, runtimes())}"
            raise click.BadParameter(msg, param_hint="--require")
    if words["baseline"]:
        # Now, and not when everything has run.
        folder = baselines_beside(Path(words["runs"]))
        find_baseline(folder, words["baseline"])
    settings = Settings(require=required, jobs=jobs or 0, **words)
    return _run(loaded, chosen, settings)


def _run(suite: Suite, chosen: Sequence[Tested], settings: Settings) -> int:
    """Run cases of a suite, print a line for each, and report."""
    from harness.commands.progress import ProgressLines, moves
    from harness.commands.pytest_session import properties_of
    from harness.core.text import case_line
    from harness.engine.run import Run, asked_of, header
    from harness.engine.run_folder import RunFolder
    from harness.judge.run import of_part
    from harness.report.finish import conclude

    def folder() -> RunFolder:
        runs = Path(settings.runs).expanduser().absolute()
        return RunFolder.create(runs, datetime.now().astimezone())

    progress = ProgressLines(sys.stdout, live=moves(sys.stdout))
    ended = []
    with Run(suite, settings, folder, progress.tell) as running:
        try:
            running.judge.require((case, w) for case in chosen for w in case.whats)
            click.echo(header(suite, chosen, running.store))
            running.make(chosen)
            running.start(chosen)
            for case in chosen:
                told = {
                    verdict.what: dict(properties_of(verdict))
                    for verdict in running.verdicts(case)
                }
                ended.append(case)
                progress.line(styled(case_line(case.id, told)))
        except KeyboardInterrupt:
            if not ended:
                running.folder.discard()
                raise
            click.echo("stopped; what ended is judged below", err=True)
        except ParityError:
            if not ended:
                running.folder.discard()
            raise
        finally:
            progress.close()
    asked = asked_of(suite, ended)
    argv = ["parity", *sys.argv[1:]]
    lines, code = conclude(running.folder, [suite], settings, asked=asked, argv=argv)
    click.echo()
    print_lines(lines)
    return of_part(code, ended=len(ended) == len(chosen))
