"""Time one subject once, in a worker process.

In every runtime, a run is timed from arrays in host memory to arrays in host memory.
A caller waits for this time, and on a GPU it cannot end before the work ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import Client
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from harness.core.case import REFERENCE, Component
from harness.core.entry import check_artifact
from harness.core.environment import core_count, installed
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.host import report_progress
from harness.measure.trace import load_inputs
from harness.plugins.bench.timing import (
    TIMING,
    BenchPlan,
    Caller,
    Loaded,
    Round,
    Turn,
)
from harness.plugins.pipelines.case import Pipeline, RoleFile
from harness.runtimes.session import Ran, Session, open_session

if TYPE_CHECKING:
    import numpy as np

    from harness.plugins.pipelines.drawing.inputs import PipelineInputs
    from harness.runtimes.session import ClockedSession, Spent

_TASKS = Path("/proc/self/task")


class Runs(NamedTuple):
    """The counted runs of one turn; see `Round`."""

    runs_s: tuple[float, ...]
    cores: float
    withheld: float | None


def time_turn(turn: Turn) -> Round:
    """Load, run once, warm up, and time runs until the plan is met.

    Raises:
        StageError: The runtime refuses the file or the run, is not the requested one,
            or gives no outputs. Then there is no row.

    """
    import psutil

    for entry in (turn.inputs, *(file.artifact for file in turn.deployed)):
        check_artifact(entry)
    loading = _loading(turn)
    report_progress(TIMING, turn.id, turn.device.device)
    base_bytes = psutil.Process().memory_info().rss
    begin = time.perf_counter()
    with loading as loaded:
        load_s = time.perf_counter() - begin
        begin = time.perf_counter()
        made = loaded.run()
        first_s = time.perf_counter() - begin
        if isinstance(turn.what, Component):
            _check(turn.id, turn.what, made)
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


def clock_operators(turn: Turn) -> list[Spent]:
    """Run a component's deployed file, and return the time of each operator.

    Raises:
        StageError: The runtime refuses the file or the run.

    """
    assert isinstance(turn.what, Component)  # noqa: S101  # for mypy
    feeds, plan = load_inputs(turn.inputs, turn.what), turn.plan
    (file,) = turn.deployed
    with _opened(file) as session:
        session.run(feeds)
        begin = time.perf_counter()
        session.run(feeds)
        runs = int(plan.budget_s / (time.perf_counter() - begin))
        runs = min(max(runs, plan.least_runs), plan.most_runs)
        return cast("ClockedSession", session).clock(feeds, runs)


def timed_runs(
    run: Callable[[], object],
    plan: BenchPlan,
    threads: int,
    caller: Caller | None = None,
) -> Runs:
    """Warm up, then time runs with so many threads until the plan is met.

    If there is a `caller`, it starts each run and keeps the times.
    """
    for _ in range(plan.warmups):
        run()
    begin, used_s, waited_s = time.perf_counter(), time.process_time(), _waited_s()
    runs_s: tuple[float, ...] = ()
    if caller is None:
        runs_s = tuple(_counted(run, plan))
    else:
        _serve(run, caller)
    took_s, used_s = time.perf_counter() - begin, time.process_time() - used_s
    withheld, after_s = None, _waited_s()
    # Threads that outnumber cores wait for one another. This looks like other load.
    if waited_s is not None and after_s is not None and threads <= core_count():
        # The count of a thread that has ended is lost, so the sum can fall.
        waited_s = max(after_s - waited_s, 0.0)
        withheld = waited_s / (used_s + waited_s) if used_s else 0.0
    return Runs(runs_s, used_s / took_s, withheld)


def _waited_s() -> float | None:
    """Return how long living threads were ready and had no core, in seconds.

    This includes time that the host of a virtual machine took. The result is None if
    the system does not count this time.
    """
    import psutil

    spent = delayed = 0
    for path in _TASKS.glob("*/schedstat"):
        with suppress(OSError):  # a thread may end meanwhile
            on_core, waiting, _ = map(int, path.read_text(encoding="ascii").split())
            spent += on_core
            delayed += waiting
    if not spent:  # a kernel that does not count reports 0 everywhere
        return None
    return delayed / 1e9 + getattr(psutil.cpu_times(), "steal", 0.0)


def _counted(run: Callable[[], object], plan: BenchPlan) -> Iterator[float]:
    """Run until the plan is met; yield the time of each run in seconds."""
    until = time.perf_counter() + plan.budget_s
    for number in range(plan.most_runs):
        if number >= plan.least_runs and time.perf_counter() >= until:
            return
        begin = time.perf_counter()
        run()
        yield time.perf_counter() - begin


def _serve(run: Callable[[], object], caller: Caller) -> None:
    """Run once for each request of the caller."""
    with Client(caller.address, authkey=caller.key) as channel:
        while channel.recv():
            run()
            channel.send(True)


def _loading(turn: Turn) -> AbstractContextManager[Loaded]:
    """Return a context manager that loads a subject; read inputs and import before."""
    if isinstance(turn.what, Pipeline):
        from harness.plugins.pipelines.drawing import inputs

        texts = [str(text) for text in turn.inputs.meta["texts"]]  # type: ignore[attr-defined]
        drawn = inputs.load_inputs(turn.inputs.path, texts)
        return _assembled(turn, turn.what, drawn)
    feeds = load_inputs(turn.inputs, turn.what)
    if turn.deployed:
        return _file(turn.deployed[0], feeds)
    from harness.plugins.bench import torch_module

    return torch_module.loaded(turn, turn.what, feeds)


@contextmanager
def _file(file: RoleFile, feeds: Mapping[str, np.ndarray]) -> Iterator[Loaded]:
    size_bytes = file.artifact.size_bytes
    with _opened(file) as session:
        yield Loaded(lambda: session.run(feeds), lambda: session.ran, size_bytes)


def _opened(file: RoleFile) -> AbstractContextManager[Session]:
    outputs = [spec.name for spec in file.component.outputs]
    path = file.artifact.file(file.model)
    return open_session(file.backend, path, file.device, outputs)


def _check(subject: str, component: Component, made: Mapping[str, np.ndarray]) -> None:
    """Refuse to time a run that did not do its work: an output is missing or empty."""
    for spec in component.outputs:
        if spec.name not in made or made[spec.name].size == 0:
            msg = f"{subject} ran and gave no {spec.name}, so its time means nothing."
            raise StageError(msg, outcome=Outcome.MISSING)


@contextmanager
def _assembled(
    turn: Turn, pipeline: Pipeline, inputs: PipelineInputs
) -> Iterator[Loaded]:
    """Assemble diffusers' own pipeline for the length of a ``with``.

    Networks are loaded when first called, so loading is part of the first drawing.
    """
    from harness.plugins.pipelines.drawing.draw import app_parts, assemble, draw
    from harness.plugins.pipelines.drawing.networks import Residents, SessionNetwork
    from harness.plugins.pipelines.drawing.reference import torch_networks
    from harness.runtimes.pytorch.prepare import ask_device

    ask_device(turn.device)
    residents = Residents()
    deployed = {file.role: SessionNetwork(file, residents) for file in turn.deployed}
    networks = torch_networks(pipeline, residents, turn.device) | deployed
    pipe = assemble(pipeline, inputs, app_parts(pipeline, networks, deployed))

    def ran() -> Ran:
        """Return what the first deployed file ran on; PyTorch if there is no file."""
        for network in deployed.values():
            if network.ran:
                return network.ran
        return Ran(
            backend=REFERENCE,
            version=installed(("torch",))["torch"],
            device=turn.device.device,
            threads=turn.device.threads,
            precision="float32",
        )

    size_bytes = sum(file.artifact.size_bytes for file in turn.deployed)
    try:
        yield Loaded(lambda: draw(pipe, pipeline, inputs), ran, size_bytes)
    finally:
        residents.close()
