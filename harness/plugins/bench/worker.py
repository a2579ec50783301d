"""Load one subject and time it, in a worker process or in pytest's.

In every runtime, a run is timed from arrays in host memory to arrays in host memory.
A caller waits for this time, and on a GPU it cannot end before the work ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from harness.core.case import REFERENCE, Component
from harness.core.entry import check_artifact
from harness.core.environment import core_count, installed
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.host import report_progress
from harness.measure.trace import load_inputs
from harness.plugins.bench.timing import BenchPlan, Loaded, Round, Turn
from harness.plugins.pipelines.case import Pipeline, RoleFile
from harness.runtimes.session import Ran, Session, open_session

if TYPE_CHECKING:
    import numpy as np

    from harness.plugins.pipelines.drawing.inputs import PipelineInputs
    from harness.runtimes.session import ClockedSession, Spent

Made = TypeVar("Made")
_TASKS = Path("/proc/self/task")


def time_turn(turn: Turn) -> Round:
    """Load, run once, warm up, and time runs until the plan is met.

    Raises:
        StageError: The runtime refuses the file or the run, is not the requested one,
            or gives no outputs. Then there is no row.

    """
    import psutil

    loading = prepared(turn)
    report_progress("timing", turn.id, turn.round)
    base_bytes = psutil.Process().memory_info().rss
    begin = time.perf_counter()
    with loading as loaded:
        load_s = time.perf_counter() - begin
        begin = time.perf_counter()
        made = loaded.run()
        first_s = time.perf_counter() - begin
        if isinstance(turn.what, Component):
            _check(turn.id, turn.what, made)
        for _ in range(turn.plan.warmups):
            loaded.run()
        counted = partial(counted_runs, loaded.run, turn.plan)
        runs_s, cores, withheld = watched(counted, turn.device.threads)
        return Round(
            load_s=load_s,
            first_s=first_s,
            runs_s=runs_s,
            cores=cores,
            withheld=withheld,
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


def watched(work: Callable[[], Made], threads: int) -> tuple[Made, float, float | None]:
    """Return what work makes, the cores that were used, and the share `withheld`.

    `Round` describes both numbers. The work has so many `threads`.
    """
    begin, used_s, waited_s = time.perf_counter(), time.process_time(), _waited_s()
    made = work()
    took_s, used_s = time.perf_counter() - begin, time.process_time() - used_s
    withheld, after_s = None, _waited_s()
    # Threads that outnumber cores wait for one another. This looks like other load.
    if waited_s is not None and after_s is not None and threads <= core_count():
        # The count of a thread that has ended is lost, so the sum can fall.
        waited_s = max(after_s - waited_s, 0.0)
        withheld = waited_s / (used_s + waited_s) if used_s else 0.0
    return made, used_s / took_s, withheld


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


def counted_runs(run: Callable[[], object], plan: BenchPlan) -> tuple[float, ...]:
    """Run until the plan is met; return the time of each run in seconds."""
    until, runs_s = time.perf_counter() + plan.budget_s, list[float]()
    while len(runs_s) < plan.most_runs:
        if len(runs_s) >= plan.least_runs and time.perf_counter() >= until:
            break
        begin = time.perf_counter()
        run()
        runs_s.append(time.perf_counter() - begin)
    return tuple(runs_s)


def prepared(turn: Turn) -> AbstractContextManager[Loaded]:
    """Read a subject's inputs; return a context manager that loads the subject.

    Raises:
        StageError: An entry of the store is damaged.

    """
    for entry in (turn.inputs, *(file.artifact for file in turn.deployed)):
        check_artifact(entry)
    if turn.deployed and isinstance(turn.what, Component):
        return _file(turn.deployed[0], load_inputs(turn.inputs, turn.what))
    from harness.plugins.bench.torch_module import module_of, on_device

    if isinstance(turn.what, Pipeline):
        from harness.plugins.pipelines.drawing import inputs

        texts = [str(text) for text in turn.inputs.meta["texts"]]  # type: ignore[attr-defined]
        drawn = inputs.load_inputs(turn.inputs.path, texts)
        loading = _assembled(turn, turn.what, drawn)
    else:
        loading = module_of(turn, turn.what, load_inputs(turn.inputs, turn.what))
    return on_device(turn.device, loading)


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
