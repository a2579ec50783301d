"""The options of `parity bench`; `harness.plugins.bench.run` does the work."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from harness.commands.options import RUNS, STORE, SUITE, case_ids, number, on_cluster


@click.command()
@click.argument("cases", nargs=-1, shell_complete=case_ids)
@SUITE
@RUNS
@STORE
@number("--rounds", 6, "Turns of every file; under 6 no ratio has a spread.")
@click.option(
    "--against",
    default="",
    metavar="SUITE|CASE",
    help="Compare CASES with the same cases of another suite, or with one case.",
)
@on_cluster("Time")
def bench(  # one option each
    *,
    cases: tuple[str, ...],
    suite: Path,
    runs: str,
    store: str,
    rounds: int,
    against: str,
    on: str,
) -> int:
    """Time CASES in rounds: components and pipelines. Without CASES, time all.

    With --against, exit code 1 means that a case is slower beyond the spread.
    """
    from harness.core.settings import Settings
    from harness.plugins.bench import run
    from harness.plugins.bench.timing import BenchPlan, timed_cases
    from harness.suite.suite import load_suite

    loaded, plan = load_suite(suite), BenchPlan(rounds=rounds)
    timed = timed_cases(loaded, cases)
    pairs = run.pairs(loaded, timed, against) if against else []
    with run.started(loaded, Settings(store=store, on=on)) as running:
        if against:
            return run.time_against(running, pairs, plan)
        keep = partial(run.keep_times, loaded, Path(runs))
        return run.time_files(running, timed, plan, keep)
