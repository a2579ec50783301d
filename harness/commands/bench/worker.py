"""Time one subject once, in its runtime's own child process.

A run is timed from arrays in host memory to arrays in host memory, in every runtime
alike: that is what a caller waits for, and on a GPU it cannot end before the work has.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from harness.commands.bench.by_module import Clocked
from harness.commands.bench.cpu_time import Clocks
from harness.commands.bench.timing import COMPILE, TIMING, Plan, Round, Runs, Turn
from harness.core.case import REFERENCE
from harness.core.environment import core_count
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.host import report_progress
from harness.measure.trace import load_inputs
from harness.runtimes.candidate.candidate import check_artifact
from harness.runtimes.session import Ran, Session, load_backend

if TYPE_CHECKING:
    import numpy as np


CLOCKED_RUNS = 10
"""In which each operator is timed; its median counts."""


class Loaded(Protocol):
    """A loaded model, whichever runtime has it."""

    @property
    def ran(self) -> Ran:
        """What really runs it."""
        ...

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run; return the outputs by name, owned."""
        ...


def time_turn(turn: Turn) -> Round:
    """Load, run once, warm up, and time runs until the plan is met.

    Raises:
        StageError: The runtime refuses the file or the run, is another than was asked
            for, or gives outputs that are none; there is no row then.

    """
    import psutil

    feeds = _feeds(turn)
    report_progress(TIMING, turn.id, turn.device.device)
    base_bytes = psutil.Process().memory_info().rss
    begin = time.perf_counter_ns()
    with opened(turn) as (loaded, size_bytes):
        load_s = since(begin)
        if turn.how == COMPILE:
            report_progress("compiling", turn.id, "minutes where it is new")
        begin = time.perf_counter_ns()
        made = loaded.run(feeds)
        first_s = since(begin)
        report_progress(TIMING, turn.id, turn.device.device)
        _check(turn, made)
        runs = timed_runs(lambda: loaded.run(feeds), turn.plan, turn.device.threads)
        return Round(
            load_s=load_s,
            first_s=first_s,
            runs_s=runs.runs_s,
            cores=runs.cores,
            withheld=runs.withheld,
            base_bytes=base_bytes,
            peak_bytes=0,  # known when the process has ended
            size_bytes=size_bytes,
            ran=asdict(loaded.ran),
        )


def timed_runs(run: Callable[[], object], plan: Plan, threads: int) -> Runs:
    """Warm up, then time runs of so many threads until the plan is met."""
    for _ in range(plan.warmups):
        run()
    runs: list[float] = []
    before = Clocks.now()
    started = time.perf_counter_ns()
    while len(runs) < plan.least_runs or (
        len(runs) < plan.most_runs and since(started) < plan.budget_s
    ):
        begin = time.perf_counter_ns()
        run()
        runs.append(since(begin))
    after = Clocks.now()
    crowded = threads > core_count()  # they wait for one another
    withheld = None if crowded else after.withheld(before)
    return Runs(tuple(runs), after.cores(before), withheld)


def clock_turn(turn: Turn) -> Clocked:
    """Return what each operator of a deployed file takes, and a run without watching.

    Raises:
        StageError: As `time_turn`, or there is no deployed file.

    """
    feeds = _feeds(turn)
    report_progress("clocking", turn.id, "operators")
    with _session(turn) as (session, _):
        for _ in range(turn.plan.warmups + 1):
            session.run(feeds)
        runs: list[float] = []
        for _ in range(CLOCKED_RUNS):
            begin = time.perf_counter_ns()
            session.run(feeds)
            runs.append(since(begin))
        spent = session.clock(feeds, CLOCKED_RUNS)
    return Clocked(spent=tuple(spent), whole_s=statistics.median(runs))


@contextmanager
def opened(turn: Turn) -> Iterator[tuple[Loaded, int]]:
    """Load what a turn is about, for the length of a ``with``; yield its size too."""
    if turn.runtime == REFERENCE:
        from harness.commands.bench import torch_module

        yield torch_module.load(turn)
        return
    with _session(turn) as loaded:
        yield loaded


@contextmanager
def _session(turn: Turn) -> Iterator[tuple[Session, int]]:
    """Open a deployed file; yield its session and its size."""
    if turn.path is None or turn.artifact is None:
        msg = f"{turn.id} has no deployed file."
        raise StageError(msg, outcome=Outcome.LOAD)
    outputs = [spec.name for spec in turn.component.outputs]
    backend = load_backend(turn.runtime)
    with backend.open_session(turn.path, turn.device, outputs) as session:
        yield session, turn.artifact.size_bytes


def _feeds(turn: Turn) -> dict[str, np.ndarray]:
    """Hold what lies in the store against its digests, and return the inputs."""
    for entry in (turn.inputs, turn.artifact):
        if entry is not None:
            check_artifact(entry)
    return load_inputs(turn.inputs, turn.component)


def _check(turn: Turn, made: Mapping[str, np.ndarray]) -> None:
    """Refuse to time a run that did not do its work.

    Raises:
        StageError: An output is missing or empty.

    """
    for spec in turn.component.outputs:
        if spec.name not in made or made[spec.name].size == 0:
            msg = f"{turn.id} ran and gave no {spec.name}, so its time means nothing."
            raise StageError(msg, outcome=Outcome.MISSING)


def since(begin_ns: int) -> float:
    """Return the seconds since a reading of `time.perf_counter_ns`."""
    return (time.perf_counter_ns() - begin_ns) / 1e9
