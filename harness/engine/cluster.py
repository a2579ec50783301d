"""Run the stages of cases on other machines, by any `concurrent.futures.Executor`.

A task is one step of a case: making what cases share, running one, or running its
operators alone. It carries what it needs to another process: the store's name, the
limits and the case. The engine on the other side is an ordinary one. So the machines
need the same packages, the checkpoint at the same path, and a store that they share.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from harness import __version__
from harness.core.case import Case, Sample
from harness.core.errors import ParityError, StageError
from harness.core.outcome import Outcome
from harness.core.pipeline import PipelineCase
from harness.core.record import CaseRecord, Failure, Row
from harness.core.settings import Settings
from harness.engine.engine import Begun, Engine, record_of, together
from harness.engine.needs import pipeline_need
from harness.engine.run_folder import PICTURES
from harness.engine.store import Store, located
from harness.engine.worker_pool import Progress
from harness.suite.forecast import need_of, stored_weights
from harness.suite.schema import Limits
from harness.suite.suite import Tested

RAY: Final = "ray"
_POLL_S: Final = 0.3
_TELL_S: Final = 2.0
_RETRIES: Final = 20
"""How often a task whose node is gone is tried again."""

Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The settings of an engine on another machine.

    Attributes:
        store: Folder or URL of the store; empty for the default folder.
        read_only: Whether nothing may be put into a shared store.
        limits: The suite's limits.
        mnn_convert: Path of MNN's native converter there; None for the usual one.
        version: Version of the harness that sends the task.

    """

    store: str
    read_only: bool
    limits: Limits
    mnn_convert: str | None
    version: str = __version__

    @classmethod
    def of(cls, settings: Settings, limits: Limits) -> Place:
        """Return what a user's settings and a suite's limits say."""
        return cls(
            store=settings.store or os.environ.get("PARITY_STORE", ""),
            read_only=settings.read_only,
            limits=limits,
            mnn_convert=settings.mnn_convert or None,
        )

    @contextmanager
    def engine(self, tell: Tell | None) -> Iterator[tuple[Engine, Path]]:
        """Give the engine of this process, and the folder of its pictures.

        Args:
            tell: Receives the progress of the stages.

        Raises:
            ParityError: The harness here has another version, or the store cannot be
                opened.

        """
        if self.version != __version__:
            msg = (
                f"{node_name()} has parity-harness {__version__}, and the run was "
                f"started by {self.version}; install the same on every node."
            )
            raise ParityError(msg)
        with TemporaryDirectory() as folder:
            # A record names its pictures with the name of this folder before them.
            pictures = Path(folder, PICTURES)
            engine = _engine(self)
            engine.redirect(tell, pictures)
            yield engine, pictures


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case's record from another machine, and its pictures by path and bytes."""

    record: CaseRecord
    pictures: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One step of cases; calling it does the step.

    Attributes:
        place: What the engine needs.
        cases: The cases.
        sample: The sample whose operators run alone; None for other steps.
        prepares: Whether to make what the cases share, and run none.
        memory_bytes: Forecast memory; 0 if it is unknown.

    """

    place: Place
    cases: tuple[Tested, ...]
    sample: Sample | None = None
    prepares: bool = False
    memory_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads that the step uses."""
        return max((case.device.threads for case in self.cases), default=1)

    @property
    def gpus(self) -> int:
        """GPUs that the step uses."""
        named = {"cuda", "tensorrt"}
        return int(any(case.device.device in named for case in self.cases))

    def __call__(self, tell: Tell | None = None) -> object:
        """Do the step in this process.

        Raises:
            ParityError: The harness here has another version, or the store cannot be
                opened, or a stage ended without an answer.

        """
        with self.place.engine(tell) as (engine, pictures):
            if self.prepares:
                engine.prepare(*self.cases)
                return None
            (case,) = self.cases
            if self.sample is not None:
                assert isinstance(case, Case)  # noqa: S101  # a pipeline has none
                return engine.isolate(case, self.sample)
            record = replace(engine.run(case), node=node_name())
            drawn = {
                path.relative_to(pictures).as_posix(): path.read_bytes()
                for path in pictures.rglob("*")
                if path.is_file()
            }
            return CaseResult(record=record, pictures=drawn)


@cache
def _engine(place: Place) -> Engine:
    """Return the engine of this process, whose hosts keep their imports."""
    store = Store(root=located(place.store, read_only=place.read_only))
    return Engine(store, place.limits, mnn_convert=place.mnn_convert)


class RayExecutor(Executor):
    """Runs tasks as tasks of a Ray cluster.

    A task waits until a node has the memory, the threads and the GPU that it needs. One
    whose node is gone is tried again elsewhere.

    Args:
        address: ``ray://host:10001``, or ``ray``: the cluster of ``$RAY_ADDRESS`` or
            this machine, or else a new one on this machine.
        tell: Receives the progress of the tasks.

    Raises:
        ParityError: Ray is not installed, or there is no such cluster.

    """

    def __init__(self, address: str, tell: Tell | None = None) -> None:
        self._ray = _connected(address)
        self._tell = tell or (lambda _: None)
        self._futures: dict[Any, Future[Any]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._remote = self._ray.remote(max_retries=_RETRIES)(_called)
        self._board = self._board_here()
        self.width = int(self._ray.cluster_resources().get("CPU", 1))
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _board_here(self) -> Any:  # noqa: ANN401  # an actor
        """Return a board on this process's own node, which does not end before it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=True
        )
        made = self._ray.remote(num_cpus=0, max_restarts=-1)(_Board)
        return made.options(scheduling_strategy=here).remote()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401  # its base says so
        """Start a task; return its result to come."""
        del args, kwargs
        nodes = [one["Resources"] for one in self._ray.nodes() if one["Alive"]]

        def most(name: str) -> float:
            return max((float(one.get(name, 0)) for one in nodes), default=0.0)

        # What is larger than every node would wait for ever; the node itself refuses
        # what does not fit, and says why.
        options: dict[str, Any] = {"num_cpus": min(fn.threads, most("CPU"))}
        if fn.memory_bytes:
            options["memory"] = int(min(fn.memory_bytes, most("memory")))
        if gpus := min(fn.gpus, most("GPU")):
            options["num_gpus"] = gpus
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed.is_set():
                msg = "the cluster is gone, or the run was stopped"
                raise StageError(msg, outcome=Outcome.RUN)
            ref = self._remote.options(**options).remote(fn, self._board)
            self._futures[ref] = future
        return future

    def shutdown(
        self,
        wait: bool = True,  # noqa: FBT001, FBT002  # its base says so
        *,
        cancel_futures: bool = True,
    ) -> None:
        """End the tasks that are left, and leave the cluster."""
        del wait, cancel_futures
        with self._lock:
            left = list(self._futures)
        for ref in left:
            with suppress(Exception):  # it has just ended, or its node has
                self._ray.cancel(ref, force=True)
        self._closed.set()
        self._thread.join(timeout=5.0)
        self._ray.shutdown()

    def _watch(self) -> None:
        """Hand over results as they come, and tell of progress."""
        while not self._closed.wait(0.01):
            with self._lock:
                waiting = list(self._futures)
            if not waiting:
                self._closed.wait(_POLL_S / 3)
                continue
            try:
                ready, _ = self._ray.wait(waiting, timeout=_POLL_S)
            except Exception as error:  # noqa: BLE001  # the cluster is gone
                self._closed.set()  # a task that is submitted later would never end
                self._fail(error)
                return
            for ref in ready:
                with self._lock:
                    future = self._futures.pop(ref)
                _settle(future, partial(self._ray.get, ref))
            # Progress may be lost with a node. Results may not, so they do not wait.
            with suppress(self._ray.exceptions.RayError):
                told = self._ray.get(self._board.take.remote(), timeout=_TELL_S)
                for progress in told:
                    self._tell(progress)
        self._fail(CancelledError())

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            left, self._futures = list(self._futures.values()), {}
        for future in left:
            future.set_exception(error)


def _settle(future: Future[Any], get: Callable[[], Any]) -> None:
    """Give a future its result or its error; Ray wraps errors in its own."""
    try:
        future.set_result(get())
    except Exception as error:  # noqa: BLE001  # who waits for it gets it
        cause = getattr(error, "cause", None)
        if isinstance(cause, ParityError):
            future.set_exception(cause)
            return
        text = str(error).strip().splitlines()
        msg = f"a task on the cluster ended: {text[-1] if text else repr(error)}"
        future.set_exception(StageError(msg, outcome=Outcome.RUN))


class _Board:
    """Keeps what tasks tell until it is taken; an actor of the cluster."""

    def __init__(self) -> None:
        self._told: list[Progress] = []

    def tell(self, progress: Progress) -> None:
        self._told.append(progress)

    def take(self) -> list[Progress]:
        told, self._told = self._told, []
        return told


def node_name() -> str:
    """Return the name of this machine, and of the node where it has several."""
    host = socket.gethostname()
    if "ray" not in sys.modules:
        return host
    import ray

    return f"{host} {ray.get_runtime_context().get_node_id()[:6]}"


def _called(task: Task, board: Any) -> object:  # noqa: ANN401  # an actor
    node = node_name()

    def tell(progress: Progress) -> None:
        # The detail of progress has the node, so that a line says who does what.
        detail = " · ".join(filter(None, (progress.detail, node)))
        worker = f"{node} {os.getpid()}"
        board.tell.remote(replace(progress, detail=detail, worker=worker))

    return task(tell)


def _connected(address: str) -> Any:  # noqa: ANN401  # a module without types
    """Return Ray, connected to a cluster.

    Raises:
        ParityError: It is not installed, there is no such cluster, or the cluster has
            another version of Python or Ray.

    """
    if find_spec("ray") is None:
        msg = '--on ray needs Ray, which is not installed; pip install "ray>=2.40"'
        raise ParityError(msg)
    # Ray asks for its usage report on the terminal, and this harness reports nothing.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    named = None if address == RAY else address
    try:
        ray.init(
            address=named,
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=None if named or "RAY_ADDRESS" in os.environ else False,
        )
    except Exception as error:  # Ray raises many kinds
        where = named or os.environ.get("RAY_ADDRESS", "this machine")
        text = str(error).strip().splitlines()
        why = text[0] if text else type(error).__name__
        msg = f"no Ray cluster can be used at {where}: {why}"
        raise ParityError(msg) from error
    return ray


def executor_on(where: str, tell: Tell | None) -> Executor | None:
    """Return the executor that a user names; None for this machine alone.

    Raises:
        ParityError: There is no such executor, or it cannot be reached.

    """
    if not where:
        return None
    if where != RAY and not where.startswith("ray://"):
        msg = f"--on takes ray, or ray://HOST:10001, and not {where!r}."
        raise ParityError(msg)
    return RayExecutor(where, tell)


@dataclass(frozen=True, kw_only=True)
class Elsewhere(AbstractContextManager["Elsewhere"]):
    """Stands in for the engine, and runs cases by an executor.

    No thread of this process waits for a case.

    Attributes:
        executor: It takes each `Task` as a function without arguments.
        place: What the engines on the other side need.
        pictures: Folder for the pictures of end-to-end cases.

    """

    executor: Executor
    place: Place
    pictures: Path | None = None

    @property
    def jobs(self) -> int:
        """Number of cases that run at once."""
        return getattr(self.executor, "width", self.place.limits.jobs)

    def close(self) -> None:
        """End the tasks that are left."""
        self.executor.shutdown(wait=False)

    def __exit__(self, *_: object) -> None:
        """Close it, however the `with` ends."""
        self.close()

    def rest(self) -> None:
        """Do nothing: the engines on the other side keep their processes."""

    def start(self, cases: Iterable[Tested]) -> list[Future[CaseRecord]]:
        """Start cases as `Engine.start` does; return their records to come."""
        begun = [(case, Future[CaseRecord]()) for case in cases]
        waiting = together(begun)

        def begin() -> None:
            while waiting:
                try:
                    some = waiting.popleft()
                except IndexError:  # another thread took the last of them
                    return
                try:
                    made = self._submit(*(case for case, _ in some), prepares=True)
                except Exception as error:  # noqa: BLE001  # the cluster is gone
                    for _, record in some:
                        record.set_exception(error)
                    continue
                made.add_done_callback(partial(run_all, some))
                return

        def run_all(some: Sequence[Begun], _: Future[Any]) -> None:
            # A failure is not reported here, but by the case that needs the artifact.
            begin()
            for case, record in some:
                self._run_into(record, case)

        for _ in range(self.jobs):
            begin()
        return [record for _, record in begun]

    def run(self, case: Tested) -> CaseRecord:
        """Run one case and return its record."""
        record = Future[CaseRecord]()
        self._run_into(record, case)
        return record.result()

    def isolate(self, case: Case, sample: Sample) -> tuple[Row, ...]:
        """Run a case's operators alone.

        Raises:
            ParityError: A stage ended without an answer.

        """
        return cast("tuple[Row, ...]", self._submit(case, sample=sample).result())

    def _submit(
        self, *cases: Tested, prepares: bool = False, sample: Sample | None = None
    ) -> Future[Any]:
        task = Task(
            place=self.place,
            cases=cases,
            prepares=prepares,
            sample=sample,
            memory_bytes=0 if prepares else memory_of(cases[0]),
        )
        return self.executor.submit(task)

    def _run_into(self, record: Future[CaseRecord], case: Tested) -> None:
        try:
            self._submit(case).add_done_callback(partial(self._take, case, record))
        except Exception as error:  # noqa: BLE001  # it was shut down meanwhile
            record.set_exception(error)

    def _take(
        self, case: Tested, record: Future[CaseRecord], ran: Future[CaseResult]
    ) -> None:
        """Hand over a record and its pictures; a task that was lost is a failure."""
        try:
            found = ran.result()
            for name, data in found.pictures.items():
                path = (self.pictures or Path()) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            record.set_result(found.record)
        except StageError as error:
            failure = Failure(outcome=error.outcome, message=str(error))
            record.set_result(record_of(case, failure=failure))
        except BaseException as error:  # noqa: BLE001  # who waits for it gets it
            record.set_exception(error)


def memory_of(case: Tested) -> int:
    """Return the forecast memory of a case, in bytes; 0 if it is unknown."""
    if isinstance(case, PipelineCase):
        need = pipeline_need(case, lambda component: stored_weights(component) or 0)
        return need.size_bytes if need else 0
    weights = stored_weights(case.component)
    if not weights or not case.samples:
        return 0
    return need_of(case, case.backend, case.samples, weights).size_bytes
