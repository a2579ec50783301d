"""`parity bench`: how long each file takes, beside PyTorch or beside another build."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands.options import RUNS, STORE, SUITE, print_lines
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL
from harness.core.text import wrapped

if TYPE_CHECKING:
    from harness.commands.bench.rounds import Bench
    from harness.commands.bench.timing import Plan, Subject, Timing
    from harness.core.case import Case
    from harness.engine.worker_pool import Progress
    from harness.suite.suite import Suite, Tested

    Times = Callable[[list[Subject], Plan], list[Timing]]


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
    help="Hold CASES against the same cases of another suite, or against one case.",
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
    from harness.commands.bench.rounds import Bench
    from harness.commands.bench.screen import compile_lines, machine_lines, plan_lines
    from harness.commands.bench.subjects import timed_cases
    from harness.commands.bench.timing import Plan
    from harness.core.case import Case
    from harness.core.settings import near
    from harness.engine.run import open_store
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    chosen = timed_cases(loaded, cases)
    plan = Plan(rounds=rounds, threads=threads)
    pairs = _pairs(loaded, chosen, against) if against else []
    with (
        _progress() as tell,
        Bench(open_store(store), limits=loaded.limits, on_progress=tell) as running,
    ):
        print_lines(machine_lines(near(loaded.path)))
        if where:
            found, failed = _where(running, _components(loaded, cases), plan)
            if found:
                _keep_where(loaded, runs, name, found)
            return CANNOT_TELL if failed else 0
        print_lines(plan_lines(plan))
        if against:
            return _against(running.times, pairs, plan)
        if not no_compile and any(isinstance(case, Case) for case in chosen):
            print_lines(compile_lines())
        timings: list[Timing] = []
        try:
            for made in _tables(running.times, chosen, plan, compiled=not no_compile):
                timings += made
        finally:
            # Also when somebody stops it: what was timed by then is.
            if timings:
                _keep(loaded, runs, name, timings, plan)
    return CANNOT_TELL if any(_counts(timing) for timing in timings) else 0


def _components(suite: Suite, names: tuple[str, ...]) -> list[Case]:
    """Return the chosen cases that are of a component.

    Raises:
        ParityError: None is.

    """
    from harness.core.case import Case

    found = [case for case in suite.select(names) if isinstance(case, Case)]
    if not found:
        msg = (
            f"{' '.join(names)} names pipelines, and operators are a component's; "
            "`parity run --list` names them."
        )
        raise ParityError(msg)
    return found


def _tables(
    times: Times,
    chosen: Sequence[Tested],
    plan: Plan,
    *,
    compiled: bool,
) -> Iterator[list[Timing]]:
    """Time and print one component after the other."""
    from harness.commands.bench.screen import component_lines
    from harness.commands.bench.subjects import inputs_words, subjects_of
    from harness.commands.bench.timing import COMPILE

    for subjects in subjects_of(chosen).values():
        wanted = [one for one in subjects if compiled or one.how != COMPILE]
        timings = times(wanted, plan)
        print_lines(component_lines(timings, inputs_words(subjects[0].case)))
        yield timings


def _against(
    times: Times,
    pairs: list[tuple[Subject, Subject]],
    plan: Plan,
) -> int:
    """Time and print pairs; 1 if one is slower, 2 if one could not be told."""
    from harness.commands.bench.ratio import Pace, ratio_of
    from harness.commands.bench.screen import against_lines

    code = 0
    for pair in pairs:
        before, after = times(list(pair), plan)
        print_lines(against_lines(before, after))
        if not (before.rounds and after.rounds):
            code = CANNOT_TELL
            continue
        pace = ratio_of(after.medians_s, before.medians_s).pace
        if pace is Pace.UNKNOWN:
            code = CANNOT_TELL
        elif pace is Pace.SLOWER and code == 0:
            code = 1
    return code


def _where(
    running: Bench, chosen: list[Case], plan: Plan
) -> tuple[list[dict[str, Any]], bool]:
    """Print where each case's time goes; return it, and whether one would not say."""
    from harness.commands.bench.by_module import found_where, where_lines

    found = []
    for case in chosen:
        try:
            found.append(found_where(case.id, *running.where(case, plan)))
        except ParityError as error:
            print_lines(wrapped(f"? {case.id}: {error}", indent="", tone="bad"))
        else:
            print_lines(where_lines(found[-1]))
    return found, len(found) < len(chosen)


def _pairs(
    suite: Suite, chosen: Sequence[Tested], against: str
) -> list[tuple[Subject, Subject]]:
    """Return what each chosen case is held against: before, then after.

    Raises:
        ParityError: The other suite lacks one of them, or no case is meant.

    """
    from harness.commands.bench.timing import Subject
    from harness.suite.suite import load_suite

    build = ""
    if Path(against).exists():
        other = load_suite(Path(against))
        build = other.path.resolve().parent.name
        twins = [other.select((case.id,))[0] for case in chosen]
    else:
        named = suite.select((against,))
        if len(named) != 1:
            msg = f"--against {against} means {len(named)} cases; name one, in full."
            raise ParityError(msg)
        twins = [named[0] for _ in chosen]
    return [
        (
            Subject(
                case=twin,
                runtime=twin.backend,
                how=twin.how,
                # A build held against itself shows what the spread is worth.
                build=build or ("again" if twin.id == case.id else ""),
            ),
            Subject(case=case, runtime=case.backend, how=case.how),
        )
        for case, twin in zip(chosen, twins, strict=True)
    ]


def _keep(
    suite: Suite, runs: str, name: str, timings: list[Timing], plan: Plan
) -> None:
    from harness.commands.bench.record import TABLE, keep
    from harness.core.settings import near

    folder, why = keep(suite, Path(runs).expanduser(), name, timings, plan)
    click.echo(f"\nwrote {near(folder / TABLE)}")
    if why:
        click.echo(f"no run of this suite on this machine to add to: {why}")
        click.echo("next  parity run, then this again, for `parity gate` and the page")
    else:
        click.echo(f"added the times to run {folder.name}: `parity gate` reads them")
        click.echo(f"next  parity report {folder.name}, for its page")


def _keep_where(
    suite: Suite, runs: str, name: str, found: list[dict[str, Any]]
) -> None:
    from harness.commands.bench.record import keep_where

    folder, why = keep_where(suite, Path(runs).expanduser(), name, found)
    if folder is None:
        click.echo(f"\nno run of this suite on this machine to add to: {why}")
    else:
        click.echo(f"\nnext  parity report {folder.name}, for its page")


def _counts(timing: Timing) -> bool:
    """Whether a failure is one of a deployed file, and not of PyTorch's compiler."""
    from harness.commands.bench.timing import COMPILE

    return bool(timing.failure) and timing.how != COMPILE


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """Show, on a terminal, whose turn it is, which round, and for how long."""
    from harness.commands.progress import ProgressLines, moves

    lines = ProgressLines(sys.stderr, live=moves(sys.stderr))
    lines.lasting = False

    def tell(progress: Progress) -> None:
        lines.tell(progress)
        if progress.stage == "done":
            lines.clear()  # the next line on the screen may be a table's

    try:
        yield tell
    finally:
        lines.close()
