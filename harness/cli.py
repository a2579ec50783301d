"""The `parity` command: the same engine and the same ids as the pytest plugin.

Exit codes: 0 parity, 1 no parity, 2 could not tell (bad input, a stage that failed).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import __version__
from harness.errors import ParityError
from harness.report.text import Line, count

if TYPE_CHECKING:
    from harness.runner import Settings
    from harness.store import Store
    from harness.suite import Suite, Tested

CANNOT_TELL = 2
_COLOURS = {"good": "green", "bad": "red", "quiet": "bright_black"}
_SUITE = click.option(
    "--suite",
    default="parity.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The suite, or the folder that it stands in.",
)
_JUDGED_BY = click.option(
    "--suite",
    type=click.Path(path_type=Path),
    help="The suite to judge by; the run's own when left out.",
)
_RUNS = click.option(
    "--runs",
    default="reports/runs",
    show_default=True,
    help="Where reports are written and looked for.",
)
_STORE = click.option("--store", default="", help="Where artifacts are kept.")
_TIER = click.option("--tier", default="", help="Hold every value to this tier.")
_SET = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="BOUND=VALUE",
    help="Change a bound of every tolerance, as in sqnr_db=30; repeatable.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parity")
def cli() -> None:
    """Hold deployed models against PyTorch, and say where they first part.

    Exit codes: 0 parity, 1 no parity, 2 could not tell.
    """


@cli.command()
@click.argument("cases", nargs=-1)
@_SUITE
@_RUNS
@_STORE
@_TIER
@_SET
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
    "--isolate",
    is_flag=True,
    help="Run every operator on PyTorch's own inputs too; else where layers part.",
)
@click.option("--e2e", is_flag=True, help="Only end-to-end cases: whole pipelines.")
@click.option("--list", "only_list", is_flag=True, help="List the cases and stop.")
def run(  # one option each
    *,
    cases: tuple[str, ...],
    suite: Path,
    only_list: bool,
    e2e: bool,
    require: str,
    jobs: int | None,
    **words: Any,  # noqa: ANN401  # the settings that are plain text
) -> int:
    """Run CASES of a suite, all when left out: unet, mnn/int8, "unet/*/fp32"."""
    from harness.runner import Settings
    from harness.spec import BACKENDS
    from harness.suite import load_suite
    from harness.toml_file import did_you_mean

    loaded = load_suite(suite)
    chosen = loaded.select(cases)
    if e2e:
        chosen = tuple(case for case in chosen if case in loaded.chains)
        if not chosen:
            msg = (
                f"{suite} has no end-to-end case of that name; add [pipeline.text2img]."
            )
            raise ParityError(msg)
    if only_list:
        for case in chosen:
            click.echo(case.id)
        return 0
    required = tuple(name for name in require.split(",") if name)
    for name in required:
        if name not in BACKENDS:
            msg = f"there is no backend {name!r}; {did_you_mean(name, BACKENDS)}"
            raise click.BadParameter(msg, param_hint="--require")
    settings = Settings(require=required, jobs=jobs or 0, **words)
    return _run(loaded, chosen, settings)


def _run(suite: Suite, chosen: Sequence[Tested], settings: Settings) -> int:
    """Run cases of a suite, print a line for each, and report."""
    from harness.conclude import conclude
    from harness.parity_session import properties_of
    from harness.progress import ProgressLines, moves
    from harness.report.run_folder import RunFolder
    from harness.report.text import case_line
    from harness.runner import Run, asked_of, header

    def folder() -> RunFolder:
        runs = Path(settings.runs).expanduser().absolute()
        return RunFolder.create(runs, datetime.now().astimezone())

    progress = ProgressLines(sys.stdout, live=moves(sys.stdout))
    ended = []
    with Run(suite, settings, folder, progress.tell) as running:
        try:
            click.echo(header(suite, chosen, running.store))
            running.make(chosen)
            running.start(chosen)
            for case in chosen:
                told = {
                    verdict.what: dict(properties_of(verdict))
                    for verdict in running.verdicts(case)
                }
                ended.append(case)
                progress.line(_styled(case_line(case.id, told)))
        except KeyboardInterrupt:
            if not ended:
                running.folder.discard()
                raise
            click.echo("stopped; what ended is judged below", err=True)
        finally:
            progress.close()
    asked = asked_of(suite, ended)
    argv = ["parity", *sys.argv[1:]]
    lines, code = conclude(running.folder, [suite], settings, asked=asked, argv=argv)
    click.echo()
    _print(lines)
    return code if len(ended) == len(chosen) else CANNOT_TELL


@cli.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.argument("case", required=False)
@_JUDGED_BY
@_RUNS
@_TIER
@_SET
@click.option(
    "--sample", default="", help="Values of this sample, not the worst of all."
)
def show(  # one option each
    *,
    run_name: str,
    case: str | None,
    suite: Path | None,
    runs: str,
    tier: str,
    changes: tuple[str, ...],
    sample: str,
) -> int:
    """Judge RUN again, under other tolerances if asked; nothing is run.

    With a CASE, list its values in order of execution.
    """
    from harness.conclude import exit_code, judged_again
    from harness.report.layers import layer_lines, samples_of
    from harness.report.record import labels
    from harness.report.run_folder import load_report
    from harness.report.summary import summary
    from harness.runner import Settings
    from harness.suite import load_suite

    report = load_report(Path(runs).expanduser(), run_name)
    settings = Settings(runs=runs, tier=tier, changes=changes)
    moved = load_suite(suite) if suite else None
    verdicts, notes = judged_again(report, settings, moved)
    names = labels(report.records.values())
    if case is None:
        click.echo(f"run {report.id}")
        _print(notes)
        records = list(report.records.values())
        _print(summary(records, verdicts, required=report.required, run=report.id))
        return exit_code(verdicts, required=report.required)
    keys = [key for key, name in names.items() if case in {name, key[1]}]
    if len(keys) != 1:
        meant = [names[key] for key in keys] or names.values()
        raise ParityError(_no_such("case", case, report.id, meant))
    own = [verdict for verdict in verdicts if verdict.key == keys[0]]
    if sample and sample not in samples_of(own):
        raise ParityError(_no_such("sample", sample, report.id, samples_of(own)))
    _print(notes)
    _print(layer_lines(report.records[keys[0]], own, sample=sample))
    return exit_code(own, required=report.required)


@cli.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@_JUDGED_BY
@_RUNS
@_TIER
@_SET
@click.option("--out", type=click.Path(path_type=Path), help="Write it here instead.")
def report(
    *,
    run_name: str,
    suite: Path | None,
    runs: str,
    out: Path | None,
    **words: Any,  # noqa: ANN401  # the settings that are plain text
) -> int:
    """Write the page of RUN again, report.html beside its report.json.

    Judged again too, under other tolerances if asked.
    """
    from harness.conclude import page_again
    from harness.report.run_folder import load_report
    from harness.runner import Settings, near
    from harness.suite import load_suite

    told = load_report(Path(runs).expanduser(), run_name)
    moved = load_suite(suite) if suite else None
    click.echo(near(page_again(told, Settings(runs=runs, **words), moved, out)))
    return 0


def _no_such(kind: str, name: str, run: str, there: Iterable[str]) -> str:
    import difflib

    there = list(there)
    close = difflib.get_close_matches(name, there, n=3, cutoff=0.3) or there[:3]
    nearest = ", ".join(close)
    return f"no {kind} of run {run} is meant by {name!r} alone; the nearest: {nearest}."


@cli.command()
@_STORE
def doctor(store: str) -> int:
    """Say what is installed, what really works here, and what mends the rest."""
    from harness.doctor import examine, exit_code, render
    from harness.store import default_root

    findings = examine(store=Path(store) if store else default_root())
    for line in render(findings):
        click.echo(line)
    return exit_code(findings)


@cli.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--into",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder to write to.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
def init(checkpoint: Path, into: Path, *, force: bool) -> int:
    """Write a commented suite for a diffusers CHECKPOINT."""
    from harness.init import write_suite

    for path in write_suite(checkpoint, into, force=force):
        click.echo(f"wrote {path}")
    click.echo(f"next  pytest -m parity {into}")
    return 0


@cli.group()
def store() -> None:
    """Look at the artifact store, hold it against its digests, make room in it."""


@store.command("list")
@_STORE
def store_list(store: str) -> int:
    """List what is in the store, newest use last."""
    opened = _open_store(store)
    total = 0
    for entry in sorted(opened.entries(), key=lambda entry: entry.used_s):
        used = datetime.fromtimestamp(entry.used_s).astimezone()
        total += entry.size_bytes
        click.echo(
            f"{entry.kind:<12} {entry.key_digest[:12]} "
            f"{entry.size_bytes / 2**20:>9.1f} MB"
            f"  used {used:%Y-%m-%d %H:%M}  {_about(entry.key)}"
        )
    click.echo(f"{total / 2**20:,.1f} MB in {opened.root}")
    return 0


def _about(key: Any) -> str:  # noqa: ANN401  # any kind's key
    component = key.get("component", "")
    if isinstance(component, dict):
        component = component["recipe"]["name"]
    return " ".join(str(part) for part in (component, key.get("kind", "")) if part)


@store.command("verify")
@_STORE
def store_verify(store: str) -> int:
    """Read every file; take out what is damaged."""
    opened = _open_store(store)
    findings = list(opened.verify())
    for finding in findings:
        done = "removed" if finding.removed else "still there"
        click.echo(f"✗ {finding.problem} ({done})")
    sound = count(len(list(opened.entries())), "sound entry")
    click.echo(f"{sound} in {opened.root}")
    return 2 if findings else 0


@store.command("clear")
@_STORE
@click.option(
    "--older-than", "days", type=float, help="Only what was not used for DAYS."
)
@click.option("--max-gb", type=float, help="Only as much as is needed to fit GB.")
@click.option("--yes", is_flag=True, help="Also without an age or a size.")
def store_clear(
    store: str, days: float | None, max_gb: float | None, *, yes: bool
) -> int:
    """Remove entries by age or size, least recently used first; all without either."""
    opened = _open_store(store)
    if days is None and max_gb is None and not yes:
        click.echo(f"Everything in {opened.root} would go; --yes says that it may.")
        return CANNOT_TELL
    removed = opened.clear(
        older_than_s=None if days is None else days * 86_400,
        max_bytes=None if max_gb is None else round(max_gb * 2**30),
    )
    freed = sum(entry.size_bytes for entry in removed) / 2**20
    click.echo(f"removed {count(len(removed), 'entry')}, {freed:,.1f} MB")
    return 0


def _open_store(root: str) -> Store:
    from harness.runner import open_store

    return open_store(root)


def _print(lines: Iterable[Line]) -> None:
    for line in lines:
        click.echo(_styled(line))


def _styled(line: Line) -> str:
    """Return a line with its colour, on a terminal that has not asked for none."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return line.text if plain else click.style(line.text, fg=_COLOURS.get(line.tone))


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; deliberate errors are one sentence."""
    call: Callable[..., Any] = cli.main
    try:
        code = call(args=argv, prog_name="parity", standalone_mode=False)
    except ParityError as error:
        click.echo(f"parity: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return CANNOT_TELL
    except (click.Abort, KeyboardInterrupt):
        click.echo("parity: stopped; what was made so far is in the store.", err=True)
        return CANNOT_TELL
    return int(code or 0)
