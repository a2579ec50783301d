"""What `parity bench` does: time files, print what they take, and keep it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from harness.commands.bench.by_module import where_lines
from harness.commands.bench.ratio import Pace, Ratio, ratio_of
from harness.commands.bench.record import TABLE, keep, keep_where
from harness.commands.bench.rounds import Bench
from harness.commands.bench.timing import (
    COMPILE,
    Plan,
    Subject,
    Timing,
    inputs_words,
    subjects_of,
    timed_cases,
)
from harness.commands.options import print_lines
from harness.commands.progress import ProgressLines, moves
from harness.core.case import Case
from harness.core.environment import environment
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL
from harness.core.settings import near
from harness.core.text import Line, count, cut, joined, wrapped
from harness.engine.run import open_store
from harness.engine.worker_pool import Progress
from harness.report.runs.cpu_load import at_work_words
from harness.suite.suite import Suite, load_suite

_COMPILING = (
    "torch.compile works in the first round of each component, which takes minutes; "
    "--no-compile leaves it out"
)
_NAME = 27
_MEBI = 2**20
_MARKS = {
    Pace.SLOWER: ("✗", "bad"),
    Pace.FASTER: ("✓", "good"),
    Pace.SAME: ("–", ""),
    Pace.UNKNOWN: ("?", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says.

    Attributes:
        suite: The suite that is timed.
        names: Cases, as `Suite.select` takes them; all when empty.
        store: Where artifacts are kept; empty for the usual place.
        plan: How much is measured.
        runs: Folder of reports.
        run: The run to add the times to; empty for the newest, if it fits.

    """

    suite: Suite
    names: tuple[str, ...]
    store: str
    plan: Plan
    runs: Path
    run: str


def time_files(given: Given, *, compiled: bool) -> int:
    """Time files beside PyTorch, a component after the other; 2 if a file failed."""
    chosen = timed_cases(given.suite, given.names)
    timings: list[Timing] = []
    with _bench(given) as bench:
        print_lines(_plan_lines(given.plan))
        if compiled and any(isinstance(case, Case) for case in chosen):
            print_lines(wrapped(_COMPILING, indent="", tone="quiet"))
        try:
            for subjects in subjects_of(chosen).values():
                wanted = [one for one in subjects if compiled or one.how != COMPILE]
                made = bench.times(wanted, given.plan)
                print_lines(_component_lines(made, inputs_words(subjects[0].case)))
                timings += made
        finally:
            # When somebody stops it, the times until then are kept.
            if timings:
                _keep(given, timings)
    # PyTorch's compiler may fail: nobody deploys what it makes.
    failed = [one for one in timings if one.failure and one.how != COMPILE]
    return CANNOT_TELL if failed else 0


def _keep(given: Given, timings: list[Timing]) -> None:
    folder, why = keep(given.suite, given.runs, given.run, timings, given.plan)
    click.echo(f"\nwrote {near(folder / TABLE)}")
    if why:
        click.echo(f"no run of this suite on this machine to add to: {why}")
        click.echo("next  parity run, then this again, for `parity gate` and the page")
    else:
        click.echo(f"added the times to run {folder.name}: `parity gate` reads them")
        click.echo(f"next  parity report {folder.name}, for its page")


def time_against(given: Given, against: str) -> int:
    """Time pairs of builds in turns; 1 if one is slower, 2 if nothing can be told."""
    pairs = _pairs(given, against)
    code = 0
    with _bench(given) as bench:
        print_lines(_plan_lines(given.plan))
        for pair in pairs:
            before, after = bench.times(pair, given.plan)
            print_lines(_against_lines(before, after))
            if not (before.rounds and after.rounds):
                code = CANNOT_TELL
                continue
            pace = ratio_of(after.medians_s, before.medians_s).pace
            if pace is Pace.UNKNOWN:
                code = CANNOT_TELL
            elif pace is Pace.SLOWER and code == 0:
                code = 1
    return code


def _pairs(given: Given, against: str) -> list[tuple[Subject, Subject]]:
    """Return each chosen case with the one that it is compared with before it.

    Raises:
        ParityError: The other suite lacks one of them, or no case is meant.

    """
    chosen, build = timed_cases(given.suite, given.names), ""
    if Path(against).exists():
        other = load_suite(Path(against))
        build = other.path.resolve().parent.name
        twins = [other.select((case.id,))[0] for case in chosen]
    else:
        named = given.suite.select((against,))
        if len(named) != 1:
            msg = f"--against {against} means {len(named)} cases; name one, in full."
            raise ParityError(msg)
        twins = [named[0] for _ in chosen]
    return [
        # A build compared with itself shows what the spread is worth.
        (
            Subject.of(twin, build or ("again" if twin.id == case.id else "")),
            Subject.of(case),
        )
        for case, twin in zip(chosen, twins, strict=True)
    ]


def show_where(given: Given) -> int:
    """Print and keep where each component's time goes; 2 if a file does not say."""
    chosen = [one for one in given.suite.select(given.names) if isinstance(one, Case)]
    if not chosen:
        msg = (
            f"{' '.join(given.names)} names pipelines, and operators are a component's;"
            " `parity run --list` names them."
        )
        raise ParityError(msg)
    found = []
    with _bench(given) as bench:
        for case in chosen:
            try:
                found.append(bench.where(case, given.plan))
            except ParityError as error:
                print_lines(wrapped(f"? {case.id}: {error}", indent="", tone="bad"))
            else:
                print_lines(where_lines(found[-1]))
    if found:
        folder, why = keep_where(given.suite, given.runs, given.run, found)
        if folder is None:
            click.echo(f"\nno run of this suite on this machine to add to: {why}")
        else:
            click.echo(f"\nnext  parity report {folder.name}, for its page")
    return CANNOT_TELL if len(found) < len(chosen) else 0


@contextmanager
def _bench(given: Given) -> Iterator[Bench]:
    """Yield what times, and show its progress on a terminal."""
    store = open_store(given.store)
    with (
        _progress() as tell,
        Bench(store, limits=given.suite.limits, on_progress=tell) as bench,
    ):
        print_lines(_machine_lines(near(given.suite.path)))
        yield bench


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """Show, on a terminal, whose turn it is, which round, and for how long."""
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


def _machine_lines(suite: str) -> Iterator[Line]:
    """Yield the machine that every figure below is from."""
    about = environment()
    cores, system = count(about.core_count, "core"), f"{about.system} {about.arch}"
    gpus = ", ".join(about.gpus)
    yield from joined((f"bench: {suite}", about.cpu, cores, gpus, system), indent="")


def _plan_lines(plan: Plan) -> Iterator[Line]:
    """Yield how it was measured."""
    yield from joined(
        (
            f"{count(plan.rounds, 'round')}, a new process each",
            f"{plan.warmups} warm-up and {plan.least_runs} to {plan.most_runs} runs",
            f"{plan.of_pipelines.least_runs} of a pipeline at least",
            "host memory to host memory",
            "ONNX Runtime's threads do not spin",
        ),
        indent="",
        tone="quiet",
    )


def _component_lines(timings: Sequence[Timing], inputs: str) -> Iterator[Line]:
    """Yield a component's or pipeline's table, PyTorch eager first if it ran."""
    threads = " or ".join(map(str, sorted({timing.threads for timing in timings})))
    yield Line(text="")
    yield Line(text=f"{timings[0].component}   {inputs}, {threads} threads")
    head = f" {'':{_NAME}} {'median ms':>9} {'middle half':>15} {'× eager':>15}"
    head += f" {'load s':>7} {'first s':>7} {'+MB':>6} {'file MB':>7} {'cores':>5}"
    yield Line(text=head, tone="quiet")
    eager = timings[0] if timings[0].rounds else None
    for timing in timings:
        name = timing.subject.removeprefix(f"{timing.component}/")
        if not timing.rounds:
            yield Line(text=f" {name}", tone="bad")
            yield from wrapped(timing.failure, tone="bad")
            continue
        low, high = timing.quartiles_s
        beside = "-" if eager is None else "1"
        if eager is not None and timing is not eager:
            beside = _ratio_words(ratio_of(timing.medians_s, eager.medians_s))
        # PyTorch's own pipeline has no file.
        size = timing.rounds[0].size_bytes
        yield Line(
            text=f" {cut(name, _NAME):{_NAME}} {_ms(timing.median_s):>9} "
            f"{f'{_ms(low)}–{_ms(high)}':>15} {beside:>15} "
            f"{timing.load_s:>7.2f} {timing.first_s:>7.2f} "
            f"{timing.memory_bytes / _MEBI:>6.0f} "
            f"{f'{size / _MEBI:.1f}' if size else '-':>7} {timing.at_work.cores:>5.2f}"
        )
    if words := at_work_words(timing.at_work for timing in timings if timing.rounds):
        yield from wrapped(words, tone="quiet")


def _against_lines(before: Timing, after: Timing) -> Iterator[Line]:
    """Yield one comparison of two builds that took turns."""
    for timing in (before, after):
        if not timing.rounds:
            yield Line(text=f" ? {timing.subject}", tone="bad")
            yield from wrapped(timing.failure, tone="bad")
            return
    ratio = ratio_of(after.medians_s, before.medians_s)
    mark, tone = _MARKS[ratio.pace]
    yield Line(
        text=f" {mark} {after.subject}: {_ratio_words(ratio)} of {before.subject}",
        tone=tone,
    )
    pair = f"{_ms(before.median_s)} ms, then {_ms(after.median_s)} ms"
    yield from joined((str(ratio.pace), pair, count(ratio.rounds, "round")))


def _ratio_words(ratio: Ratio) -> str:
    """Return a ratio with its spread, if there are rounds enough for one."""
    if ratio.low == 0.0:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"
