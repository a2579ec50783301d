"""The work of `parity bench`: time files, print the times, and write them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harness.commands.progress import ProgressLines
from harness.core.end_to_end import Tested
from harness.core.environment import Environment, environment
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL
from harness.core.settings import Settings, near
from harness.core.shown import echo, print_lines
from harness.core.text import Line, count, cut, few, joined, wrapped
from harness.engine.engine import Engine
from harness.engine.executors import executor_on
from harness.engine.run import open_store
from harness.engine.worker_pool import Progress
from harness.plugins.bench import elsewhere, record
from harness.plugins.bench.ratio import Pace, ratio_of
from harness.plugins.bench.record import benchmarks
from harness.plugins.bench.rounds import Bench
from harness.plugins.bench.timing import (
    BenchPlan,
    Subject,
    Timing,
    subjects_of,
)
from harness.report.times import disturbed_words, quartiles
from harness.suite.suite import Suite, load_suite

Each = Callable[[Iterable[Sequence[Subject]], BenchPlan], Iterator[list[Timing]]]
"""Times each group of subjects, here or elsewhere."""

_NAME = 27
_SHOWN = 6
_MEBI = 2**20
_SECOND = 1000
_MARKS = {
    Pace.SLOWER: ("✗", "bad"),
    Pace.FASTER: ("✓", "good"),
    Pace.SAME: ("–", ""),
    Pace.UNKNOWN: ("?", ""),
}


@contextmanager
def started(suite: Suite, settings: Settings) -> Iterator[Each]:
    """Print where the figures come from, and show progress on a terminal."""
    where = [f"cluster {settings.on}"] if settings.on else _facts(environment())
    lines = ProgressLines(sys.stderr)
    lines.lasting = False

    def tell(progress: Progress) -> None:
        lines.tell(progress)
        if progress.stage == "done":
            lines.clear()  # the next line on the screen may be a table's

    try:
        store = open_store(settings.store)
        executor = executor_on(settings.on, tell)
        print_lines(joined((f"bench: {near(suite.path)}", *where), indent=""))
        if executor is not None:
            with ExitStack() as ending:  # the tasks that are left end, and nobody waits
                ending.callback(executor.shutdown, wait=False, cancel_futures=True)
                yield partial(elsewhere.each, executor, suite, settings)
            return
        with Engine(store, suite.limits, on_progress=tell) as engine:
            bench = Bench(engine.artifacts)
            yield lambda groups, plan: (bench.times(group, plan) for group in groups)
    finally:
        lines.close()


def _facts(about: Environment) -> list[str]:
    return [
        about.cpu,
        count(about.core_count, "core"),
        ", ".join(about.gpus),
        f"{about.system} {about.arch}",
    ]


def time_files(
    each: Each,
    chosen: Sequence[Tested],
    plan: BenchPlan,
    keep: Callable[[list[Timing]], None],
) -> int:
    """Time files and PyTorch, component by component; return 2 if a file failed."""
    print_lines(_plan_lines(plan))
    if elsewhere := [case.id for case in chosen if case.targets]:
        text = f"not timed, because they run on a target: {few(elsewhere, _SHOWN)}"
        print_lines(wrapped(text, indent="", tone="quiet"))
    timings: list[Timing] = []
    try:
        for made in each(subjects_of(chosen).values(), plan):
            print_lines(_component_lines(made))
            timings += made
    finally:
        # If the user stops the command, the times so far are kept.
        if timings:
            keep(timings)
    return CANNOT_TELL if any(timing.failure for timing in timings) else 0


def keep_times(suite: Suite, runs: Path, timings: Sequence[Timing]) -> None:
    """Write timings, and print where."""
    path, why = record.keep(suite, runs, timings)
    echo()
    if why:
        echo(f"wrote {near(path)}")
        echo(f"no run of this suite on this machine to add to: {why}")
        echo("next  parity run, then this again, for `parity gate` and the page")
    else:
        run = path.parent.name
        echo(f"added the times to run {run}: `parity gate` reads them")
        steps = Settings(runs=str(runs)).next_steps(run)
        echo(f"next  parity report {run}{steps.runs}, for its page")


def _plan_lines(plan: BenchPlan) -> Iterator[Line]:
    facts = (
        f"{count(plan.rounds, 'round')}, a new process each",
        f"{plan.warmups} warm-up and {plan.least_runs} to {plan.most_runs} runs",
        f"{plan.of_pipelines.least_runs} of a pipeline at least",
        "host memory to host memory",
        "ONNX Runtime's threads do not spin",
    )
    yield from joined(facts, indent="", tone="quiet")


def _component_lines(timings: Sequence[Timing]) -> Iterator[Line]:
    """Yield a component's or pipeline's table, PyTorch eager first if it ran."""
    subject = timings[0].subject
    entries = {entry["case"]: entry for entry in benchmarks(timings)}
    threads = {one.subject.device.threads for one in timings}
    said = " or ".join(map(str, sorted(threads)))
    yield Line(text="")
    yield Line(text=f"{subject.case.subject}   {subject.inputs}, {said} threads")
    if about := timings[0].environment:
        yield from joined((timings[0].node, *_facts(about)), indent="", tone="quiet")
    head = f" {'':{_NAME}} {'median ms':>9} {'middle half':>15} {'× eager':>15}"
    head += f" {'load s':>7} {'first s':>7} {'+MB':>6} {'file MB':>7} {'cores':>5}"
    yield Line(text=head, tone="quiet")
    for timing in timings:
        name = timing.subject.id.partition("/")[2]
        if timing.failure:
            yield Line(text=f" {name}", tone="bad")
            yield from wrapped(timing.failure, tone="bad")
        else:
            row = _row(entries[timing.subject.id])
            yield Line(text=f" {cut(name, _NAME):{_NAME}} {row}")
    if words := disturbed_words([one["withheld"] for one in entries.values()]):
        yield from wrapped(words, tone="quiet")


def _row(entry: Mapping[str, Any]) -> str:
    low, median, high = quartiles(entry["runs"])
    shares = entry["over_pytorch"]
    beside = str(ratio_of(shares)) if shares else "-"
    size = f"{entry['size_bytes'] / _MEBI:.1f}" if entry["size_bytes"] else "-"
    return (
        f"{_ms(median):>9} {f'{_ms(low)}–{_ms(high)}':>15} {beside:>15} "
        f"{entry['load_ms'] / 1e3:>7.2f} {entry['first_run_ms'] / 1e3:>7.2f} "
        f"{entry['memory_bytes'] / _MEBI:>6.0f} {size:>7} {entry['cores']:>5.2f}"
    )


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < _SECOND else f"{value:.0f}"


def pairs(
    suite: Suite, chosen: Sequence[Tested], against: str
) -> list[tuple[Subject, Subject]]:
    """Return pairs: the build to compare with, then the chosen case.

    Raises:
        ParityError: The other suite lacks one of the cases, or no case is chosen.

    """
    build = ""
    # An emulator's time is no time of a phone.
    chosen = [case for case in chosen if not case.targets]
    if not chosen:
        msg = "every chosen case runs on a target, and those are not timed."
        raise ParityError(msg)
    if Path(against).exists():
        other = load_suite(Path(against))
        build = other.path.resolve().parent.name or "other"
        there = {case.id: case for case in other.tested}
        if lacking := [case.id for case in chosen if case.id not in there]:
            msg = f"{other.path} has no {few(lacking)}; name CASES that both have."
            raise ParityError(msg)
        twins = [there[case.id] for case in chosen]
    else:
        named = suite.select((against,))
        if len(named) != 1:
            msg = f"--against {against} means {len(named)} cases; name one, in full."
            raise ParityError(msg)
        twins = [named[0] for _ in chosen]
    return [
        # A build compared with itself shows how large the spread is.
        (
            Subject(case=twin, build=build or ("again" if twin.id == case.id else "")),
            Subject(case=case),
        )
        for case, twin in zip(chosen, twins, strict=True)
    ]


def time_against(
    each: Each,
    pairs: Sequence[tuple[Subject, Subject]],
    plan: BenchPlan,
) -> int:
    """Time pairs of builds in turns; return 1 if one is slower, 2 if unknown."""
    print_lines(_plan_lines(plan))
    paces = set()
    for before, after in each(pairs, plan):
        if not (before.rounds and after.rounds):
            failed = before if before.failure else after
            print_lines([Line(text=f" ? {failed.subject.id}", tone="bad")])
            print_lines(wrapped(failed.failure, tone="bad"))
            paces.add(Pace.UNKNOWN)
            continue
        ratio = after.over(before)
        mark, tone = _MARKS[ratio.pace]
        text = f" {mark} {after.subject.id}: {ratio} of {before.subject.id}"
        print_lines([Line(text=text, tone=tone)])
        (was,), (is_,) = (benchmarks([one]) for one in (before, after))
        one, two = (quartiles(entry["runs"])[1] for entry in (was, is_))
        facts = (
            f"{_ms(one)} ms, then {_ms(two)} ms",
            count(plan.rounds, "round"),
            after.node,
        )
        print_lines(joined((str(ratio.pace), *facts)))
        paces.add(ratio.pace)
    if Pace.UNKNOWN in paces:
        return CANNOT_TELL
    return 1 if Pace.SLOWER in paces else 0
