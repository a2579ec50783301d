"""`parity run`: run the cases of a suite, print a line for each, and report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands.options import OF_RUN, case_ids, of_run
from harness.core.errors import ParityError
from harness.core.shown import echo, print_lines, shown, styled

if TYPE_CHECKING:
    from harness.core.end_to_end import Tested
    from harness.core.memory import Need
    from harness.core.settings import Settings
    from harness.engine.run import Begin
    from harness.suite.shards import ShardCases
    from harness.suite.suite import Suite


@click.command()
@click.argument("cases", nargs=-1, shell_complete=case_ids)
@OF_RUN
@of_run("require")
@of_run("jobs", type=click.IntRange(min=1), default=None)
@of_run("on")
@of_run("read-only")
@of_run("mnn-convert")
@of_run("baseline")
@of_run("shard")
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
    **options: Any,  # noqa: ANN401  # the settings, mostly as plain text
) -> int:
    """Run CASES of a suite, such as unet, mnn/int8 or "unet/*/fp32". Default: all."""
    from harness.commands.session import settings_of, shard_part
    from harness.engine.run import path_of
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    chosen = loaded.select(cases)
    if e2e:
        chosen = tuple(case for case in chosen if case in loaded.pipeline_cases)
        if not chosen:
            ids = ", ".join(case.id for case in loaded.pipeline_cases)
            hint = (
                f" of that name; there are {ids}"
                if ids
                else "; add [pipeline.text2img]"
            )
            msg = f"{suite} has no end-to-end case{hint}."
            raise ParityError(msg)
    part = None
    if shard := options["shard"]:
        path = path_of(loaded)
        divided = [(path, case) for case in chosen]
        part = shard_part("--shard", shard, divided, options["runs"])
        chosen = tuple(case for case in chosen if (path, case.id) in part["own"])
    if only_list:
        for case in chosen:
            echo(case.id)
        return 0
    if forecast:
        print_forecast(loaded, chosen, options["store"])
        return 0
    settings = settings_of(options)
    return run_cases(loaded, chosen, settings, part)


def run_cases(
    suite: Suite,
    chosen: Sequence[Tested],
    settings: Settings,
    part: ShardCases | None,
    begin: Begin | None = None,
) -> int:
    """Run cases of a suite, print a line for each, and report.

    `begin` starts them, as of `harness.engine.run.Run`.
    """
    from harness.commands.progress import ProgressLines
    from harness.commands.session import RunSession, properties_of
    from harness.core.settings import near
    from harness.core.text import case_line, one_line
    from harness.engine.run import asked_of, path_of
    from harness.judge.run import of_part
    from harness.suite.suite import Check

    progress = ProgressLines(sys.stdout)
    ended = []
    failed = False
    with RunSession(settings, progress.tell, begin) as session:
        running = session.of(suite)
        try:
            session.prepare(
                Check(suite=suite, case=case, what=what)
                for case in chosen
                for what in case.whats
            )
            progress.line(shown(session.headers[path_of(suite)], lines=True))
            progress.course = session.course
            session.start()
            for case in chosen:
                told = {
                    verdict.what: dict(properties_of(verdict))
                    for verdict in running.verdicts(case)
                }
                ended.append(case)
                session.course.end((path_of(suite), case.id))
                progress.line(styled(case_line(case.id, told)))
        except (KeyboardInterrupt, SystemExit, ParityError, BrokenPipeError) as error:
            # SystemExit is what Ray makes of a signal, on a cluster that began here.
            # Later cases may have ended before the one that was waited for.
            ended += running.keep_ended(chosen[len(ended) :])
            if not ended:
                session.discard()
                raise
            text = "stopped; what ended is judged below"
            if isinstance(error, ParityError):
                failed = True
                text = "what ended is judged below"
                echo(f"parity: {one_line(str(error))}", err=True)
            elif isinstance(error, BrokenPipeError):
                text = "parity: nobody reads the output, so the run stopped; "
                text += f"the report of what ended goes to {near(running.folder.path)}"
            with suppress(OSError):  # nobody may read this either
                echo(text, err=True)
        finally:
            progress.close()
    argv = ["parity", *sys.argv[1:]]
    lines, code = session.finish(asked_of(suite, ended), argv, part)
    echo()
    print_lines(lines)
    return of_part(code, ended=len(ended) == len(chosen) and not failed)


def print_forecast(suite: Suite, chosen: Sequence[Tested], store: str) -> None:
    """Print the memory of each case's largest stage, for an empty store."""
    from harness.core.memory import GIB, budget_bytes
    from harness.engine.artifacts import Artifacts
    from harness.engine.needs import TaskStep, needs_of
    from harness.engine.run import open_store
    from harness.engine.worker_pool import WorkerPool

    worker_pool = WorkerPool.of(suite.limits)
    artifacts = Artifacts(open_store(store), worker_pool, None)
    limit = suite.limits.memory_gib
    there = budget_bytes(limit)
    whose = "available" if limit is None else "allowed"
    echo(f"{there / GIB:.1f} GiB {whose}; the largest stage of each case needs")
    try:
        for case in chosen:
            needs = list(needs_of(case, TaskStep.ALL, artifacts.weights))
            line = _line(needs, there)
            echo(f"{case.id:<42} {line}")
    finally:
        worker_pool.close()


def _line(needs: Sequence[Need | None], there: int) -> str:
    from harness.core.memory import GIB

    known = [need for need in needs if need is not None]
    if len(known) < len(needs):
        return "not known: the recipe's weights cannot be counted ahead"
    largest = max(known, key=lambda need: need.size_bytes)
    line = f"{largest.size_bytes / GIB:5.1f} GiB, {largest.stage}"
    most = max(need.most_bytes for need in known)
    if largest.size_bytes > there:
        line += "; does not fit"
    elif most > largest.size_bytes:
        line += f"; up to {most / GIB:.1f} where there is room"
    return line
