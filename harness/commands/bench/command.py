"""`parity bench`; what it does is in `harness.commands.bench.run`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.options import RUNS, STORE, SUITE


@click.command()
@click.argument("cases", nargs=-1)
@SUITE
@RUNS
@STORE
@click.option(
    "--rounds",
    default=6,
    show_default=True,
    type=click.IntRange(min=1),
    help="Turns of every file; under 6 no ratio has a spread.",
)
@click.option(
    "--threads", default=0, help="Of every runtime, instead of the suite's number."
)
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option(
    "--against",
    default="",
    metavar="SUITE|CASE",
    help="Compare CASES with the same cases of another suite, or with one case.",
)
@click.option("--where", is_flag=True, help="Time each operator, rolled up by module.")
@click.option(
    "--run", "name", default="", help="Run to add the times to; the newest that fits."
)
def bench(  # one option each
    *,
    cases: tuple[str, ...],
    suite: Path,
    runs: str,
    store: str,
    rounds: int,
    threads: int,
    no_compile: bool,
    against: str,
    where: bool,
    name: str,
) -> int:
    """Time CASES in rounds: components and pipelines, all of them when left out.

    With --against, exit code 1 says that a case is slower beyond the spread.
    """
    from harness.commands.bench import run
    from harness.commands.bench.timing import Plan
    from harness.suite.suite import load_suite

    given = run.Given(
        suite=load_suite(suite),
        names=cases,
        store=store,
        plan=Plan(rounds=rounds, threads=threads),
        runs=Path(runs).expanduser(),
        run=name,
    )
    if where:
        return run.show_where(given)
    if against:
        return run.time_against(given, against)
    return run.time_files(given, compiled=not no_compile)
