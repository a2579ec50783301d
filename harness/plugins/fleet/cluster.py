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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from harness import __version__
from harness.core.case import Case, Sample
from harness.core.end_to_end import Tested
from harness.core.errors import ParityError, StageError
from harness.core.outcome import Outcome
from harness.core.record import CaseRecord, Failure, Row
from harness.core.settings import Settings
from harness.core.store_root import is_url
from harness.core.waiting import awaited
from harness.engine import shared
from harness.engine.engine import Engine, record_of
from harness.engine.executors import NodeWork, Tell
from harness.engine.groups import Begun
from harness.engine.needs import Takes, TaskStep, takes
from harness.engine.run_folder import PICTURES
from harness.engine.store import Store, located
from harness.engine.worker_pool import Progress
from harness.plugins.fleet.queue import Queue, groups_of, largest_first
from harness.suite.schema import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
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
    def of(cls, settings: Settings, limits: Limits) -> NodeSettings:
        """Return what a user's settings and a suite's limits say.

        Paths are absolute, because a node works in another folder.
        """
        store = settings.store or os.environ.get("PARITY_STORE", "")
        if store and not is_url(store):
            store = str(Path(store).expanduser().absolute())
        convert = settings.mnn_convert
        if os.sep in convert:  # a bare name is looked for on the node's own PATH
            convert = str(Path(convert).expanduser().absolute())
        return cls(
            store=store,
            read_only=settings.read_only,
            limits=limits,
            mnn_convert=convert or None,
        )

    @contextmanager
    def engine(self, tell: Tell | None) -> Iterator[tuple[Engine, Path]]:
        """Give the engine of this process, and the folder of its pictures.

        Raises:
            ParityError: The harness here has another version.
            StageError: The store cannot be opened here.

        """
        if self.version != __version__:
            msg = (
                f"{node_name()} has parity-harness {__version__}, and the run was "
                f"started by {self.version}; install the same on every node."
            )
            raise ParityError(msg)
        if tell is not None:
            # The user does not see what a node prints.
            shared.on_wait = lambda stage, subject, detail: tell(
                Progress(stage=stage, subject=subject, detail=detail)
            )
        with TemporaryDirectory() as folder:
            # A record names its pictures with the name of this folder before them.
            pictures = Path(folder, PICTURES)
            try:
                engine = _engine(self)
            except ParityError as error:
                msg = f"{node_name()} cannot run a task: {error}"
                raise StageError(msg, outcome=Outcome.RUN) from error
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
        step: The step.
        sample: The sample whose operators run alone; None to run the whole case.
        takes: What it takes of its node.
        alone: Whether no other task may run on its node meanwhile.
        node_number: Which of the nodes that fit best runs a task that must be alone,
            counted in the order of their names, from 0 and round again.

    """

    place: NodeSettings
    cases: tuple[Tested, ...]
    step: TaskStep = TaskStep.RUN
    sample: Sample | None = None
    takes: Takes = field(default_factory=Takes)
    alone: bool = False
    node_number: int = 0

    def __call__(self, tell: Tell | None = None) -> object:
        """Do the step in this process.

        Raises:
            ParityError: The harness here has another version, the store cannot be
                opened here, or a stage ended without an answer.

        """
        with self.place.engine(tell) as (engine, pictures):
            if self.step is TaskStep.PREPARE:
                return engine.prepare(*self.cases)
            if self.step is TaskStep.FORGET:
                engine.forget(self.cases)
                return None
            (case,) = self.cases
            if self.step is TaskStep.EXPORT:
                assert isinstance(case, Case)  # noqa: S101  # a pipeline has several
                return engine.export(case)
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


@dataclass(frozen=True, kw_only=True)
class NodeTask(Task):
    """Work on cases that must be alone on its node; see `CaseExecutor.alone`."""

    work: NodeWork
    alone: bool = True

    def __call__(self, tell: Tell | None = None) -> object:
        """Do the work in this process."""
        with self.place.engine(tell) as (engine, _):
            return self.work(engine, node_name())


@cache
def _engine(place: NodeSettings) -> Engine:
    """Return the engine of this process, whose hosts keep their imports."""
    store = Store(root=located(place.store, read_only=place.read_only))
    return Engine(store, place.limits, mnn_convert=place.mnn_convert)


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
    place: NodeSettings
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
        condition = threading.Condition()
        begun: list[Begun] = [(case, _Coming(condition)) for case in cases]
        Queue(self, largest_first(groups_of(begun))).go_on()
        return [record for _, record in begun]

    def run(self, case: Tested) -> CaseRecord:
        """Run one case and return its record."""
        record = Future[CaseRecord]()
        self.run_into(record, case)
        return awaited(record)

    def isolate(self, case: Case, sample: Sample) -> tuple[Row, ...]:
        """Run a case's operators alone.

        Raises:
            ParityError: A stage ended without an answer.

        """
        return cast("tuple[Row, ...]", awaited(self.submit(case, sample=sample)))

    def forget(self, cases: Sequence[Tested]) -> None:
        """Remove from the shared store what was drawn for these cases alone.

        Raises:
            ParityError: The store cannot be written.

        """
        with suppress(StageError):  # its node is gone, and the drawn inputs stay
            awaited(self.submit(*cases, step=TaskStep.FORGET))

    def submit(
        self,
        *cases: Tested,
        step: TaskStep = TaskStep.RUN,
        sample: Sample | None = None,
    ) -> Future[Any]:
        """Submit one step of cases; see `Task`."""
        task = Task(
            place=self.place,
            cases=cases,
            step=step,
            sample=sample,
            takes=takes(cases, step),
        )
        return self.executor.submit(task)

    def run_into(
        self,
        record: Future[CaseRecord],
        case: Tested,
        took_s: Mapping[str, float] | None = None,
    ) -> None:
        """Run a case, and hand over its record or the error.

        `took_s` has the seconds of what was made ahead for this record, by kind.
        """
        try:
            ran = self.submit(case)
            ran.add_done_callback(partial(self._take, case, record, took_s))
        except Exception as error:  # noqa: BLE001  # it was shut down meanwhile
            record.set_exception(error)

    def _take(
        self,
        case: Tested,
        record: Future[CaseRecord],
        took_s: Mapping[str, float] | None,
        ran: Future[CaseResult],
    ) -> None:
        """Hand over a record and its pictures; a task that was lost is a failure."""
        try:
            found = ran.result()
            for name, data in found.pictures.items():
                path = (self.pictures or Path()) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            record.set_result(found.record.with_seconds(took_s))
        except StageError as error:
            failure = Failure(outcome=error.outcome, message=str(error))
            record.set_result(record_of(case, failure=failure))
        except BaseException as error:  # noqa: BLE001  # the future raises it
            record.set_exception(error)


class _Coming(Future[CaseRecord]):
    """The record of a case that waits. Ten thousand may wait, so they share a lock."""

    def __init__(self, condition: threading.Condition) -> None:
        super().__init__()
        self._condition = condition

    def result(self, timeout: float | None = None) -> CaseRecord:
        """Return the record; see `Future.result`."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None; see `Future.exception`."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        with self._condition:
            self._condition.wait_for(self.done, timeout)  # others wake it too


def node_name() -> str:
    """Return the name of this machine, and of the node where it has several."""
    host = socket.gethostname()
    if "ray" not in sys.modules:
        return host
    import ray

    return f"{host} {ray.get_runtime_context().get_node_id()[:6]}"
