"""Time one subject once, in a worker process.

A run is timed from arrays in host memory to arrays in host memory, in every runtime
alike: that is what a caller waits for, and on a GPU it cannot end before the work has.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Client
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.commands.bench.timing import (
    COMPILE,
    TIMING,
    Caller,
    Plan,
    Round,
    Turn,
)
from harness.core.case import Component
from harness.core.environment import core_count
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.pipeline import Pipeline, Seated
from harness.engine.host import report_progress
from harness.measure.trace import load_inputs
from harness.runtimes.candidate.candidate import check_artifact
from harness.runtimes.session import Ran, Session, Spent, load_backend

if TYPE_CHECKING:
    import numpy as np

CLOCKED_RUNS = 10
"""Runs in which each operator is timed; its median counts."""

_TASKS = Path("/proc/self/task")


class Loaded(NamedTuple):
    """A loaded component or pipeline.

    Attributes:
        run: Runs it once.
        size_bytes: Size of the deployed files, or of PyTorch's weights.
        ran: Returns what really ran, after a run.

    """

    run: Callable[[], Any]
    size_bytes: int
    ran: Callable[[], Ran]


class Runs(NamedTuple):
    """The counted runs of one turn; see `Round`."""

    runs_s: tuple[float, ...]
    cores: float
    withheld: float | None


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this process at one moment, in seconds.

    A thread that is ready to run waits while another has the core. Linux counts that
    for each thread (`/proc/PID/task/TID/schedstat`, second figure, in nanoseconds),
    and counts what the host of a virtual machine takes as stolen time. No other system
    counts it.

    Attributes:
        wall: Time.
        used: Processor time of all threads.
        waited: Time that the living threads were ready and had no core, and that a host
            took; None where the system does not say.

    """

    wall: float
    used: float
    waited: float | None

    @classmethod
    def now(cls) -> Clocks:
        """Read them."""
        return cls(time.perf_counter(), time.process_time(), _waited_s())

    def cores(self, since: Clocks) -> float:
        """Return how many cores were at work."""
        return (self.used - since.used) / (self.wall - since.wall)

    def withheld(self, since: Clocks) -> float | None:
        """Return the share of the processor time asked for that went to others.

        >>> Clocks(10.0, 13.0, 2.0).withheld(since=Clocks(0.0, 0.0, 1.0))
        0.07142857142857142
        """
        if self.waited is None or since.waited is None:
            return None
        # A thread that has ended takes its count along.
        waited = max(self.waited - since.waited, 0.0)
        asked = self.used - since.used + waited
        return waited / asked if asked else 0.0


def _waited_s() -> float | None:
    import psutil

    spent = delayed = 0
    for path in _TASKS.glob("*/schedstat"):
        with suppress(OSError):  # a thread may end meanwhile
            on_core, waiting, _ = map(int, path.read_text(encoding="ascii").split())
            spent += on_core
            delayed += waiting
    if not spent:  # a kernel that does not count says 0 of everything
        return None
    return delayed / 1e9 + getattr(psutil.cpu_times(), "steal", 0.0)


def time_turn(turn: Turn) -> Round:
    """Load, run once, warm up, and time runs until the plan is met.

    Raises:
        StageError: The runtime refuses the file or the run, is another than was asked
            for, or gives no outputs; there is no row then.

    """
    import psutil

    for entry in turn.entries:
        check_artifact(entry)
    if isinstance(turn.what, Pipeline):
        from harness.commands.bench import whole_pipeline

        inputs = whole_pipeline.inputs_of(turn)
        loading = whole_pipeline.opened(turn, turn.what, inputs)
    else:
        loading = _opened(turn, turn.what, load_inputs(turn.inputs, turn.what))
    report_progress(TIMING, turn.id, turn.device.device)
    base_bytes = psutil.Process().memory_info().rss
    begin = time.perf_counter_ns()
    with loading as loaded:
        load_s = since(begin)
        if turn.how == COMPILE:
            report_progress("compiling", turn.id, "minutes where it is new")
        begin = time.perf_counter_ns()
        made = loaded.run()
        first_s = since(begin)
        report_progress(TIMING, turn.id, turn.device.device)
        if isinstance(turn.what, Component):
            _check(turn, turn.what, made)
        runs = timed_runs(loaded.run, turn.plan, turn.device.threads, turn.caller)
        return Round(
            load_s=load_s,
            first_s=first_s,
            **runs._asdict(),
            base_bytes=base_bytes,
            peak_bytes=0,  # known when the process has ended
            size_bytes=loaded.size_bytes,
            ran=asdict(loaded.ran()),
        )


def timed_runs(
    run: Callable[[], object], plan: Plan, threads: int, caller: Caller | None = None
) -> Runs:
    """Warm up, then time runs of so many threads until the plan is met.

    With a `caller` it says when a run begins, and has the times.
    """
    begin = time.perf_counter_ns()
    for _ in range(plan.warmups):
        run()
    warm_s = since(begin) / plan.warmups if plan.warmups else plan.budget_s
    before = Clocks.now()
    runs = () if caller else tuple(_counted(run, plan))
    if caller:
        fitting = int(plan.budget_s / warm_s)
        _serve(run, caller, max(plan.least_runs, min(plan.most_runs, fitting)))
    after = Clocks.now()
    # With more threads than cores they wait for one another, and nothing tells that
    # from other work.
    withheld = None if threads > core_count() else after.withheld(before)
    return Runs(runs, after.cores(before), withheld)


def _counted(run: Callable[[], object], plan: Plan) -> Iterator[float]:
    """Run until the plan is met; yield the seconds of each run."""
    started = time.perf_counter_ns()
    counted = 0
    while counted < plan.least_runs or (
        counted < plan.most_runs and since(started) < plan.budget_s
    ):
        begin = time.perf_counter_ns()
        run()
        yield since(begin)
        counted += 1


def _serve(run: Callable[[], object], caller: Caller, runs: int) -> None:
    """Say how many runs fit into a turn, then run whenever the caller says so."""
    with Client(caller.address, authkey=caller.key) as channel:
        channel.send(runs)
        while channel.recv():
            run()
            channel.send(True)


def clock_turn(turn: Turn, component: Component) -> tuple[tuple[Spent, ...], float]:
    """Return what each operator of a deployed file takes, in order of execution.

    The other number is the median of a run as deployed, which nothing watches.

    Raises:
        StageError: As `time_turn`.

    """
    for entry in turn.entries:
        check_artifact(entry)
    feeds = load_inputs(turn.inputs, component)
    report_progress("clocking", turn.id, "operators")
    with _session(turn.deployed[0]) as session:
        for _ in range(turn.plan.warmups + 1):
            session.run(feeds)
        exactly = Plan(least_runs=CLOCKED_RUNS, most_runs=CLOCKED_RUNS)
        whole_s = statistics.median(_counted(lambda: session.run(feeds), exactly))
        spent = session.clock(feeds, CLOCKED_RUNS)
    return tuple(spent), whole_s


@contextmanager
def _opened(
    turn: Turn, component: Component, feeds: Mapping[str, np.ndarray]
) -> Iterator[Loaded]:
    """Load a component for the length of a ``with``."""
    if not turn.deployed:
        from harness.commands.bench import torch_module

        yield torch_module.load(turn, component, feeds)
        return
    with _session(turn.deployed[0]) as session:
        yield Loaded(lambda: session.run(feeds), turn.size_bytes, lambda: session.ran)


def _session(file: Seated) -> AbstractContextManager[Session]:
    outputs = [spec.name for spec in file.component.outputs]
    path = file.artifact.file(file.model)
    return load_backend(file.backend).open_session(path, file.device, outputs)


def _check(turn: Turn, component: Component, made: Mapping[str, np.ndarray]) -> None:
    """Refuse to time a run that did not do its work.

    Raises:
        StageError: An output is missing or empty.

    """
    for spec in component.outputs:
        if spec.name not in made or made[spec.name].size == 0:
            msg = f"{turn.id} ran and gave no {spec.name}, so its time means nothing."
            raise StageError(msg, outcome=Outcome.MISSING)


def since(begin_ns: int) -> float:
    """Return the seconds since a reading of `time.perf_counter_ns`."""
    return (time.perf_counter_ns() - begin_ns) / 1e9
