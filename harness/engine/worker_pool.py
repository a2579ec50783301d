"""Child processes for stages: an idle host for each job, and one maker for each thing.

Knows hosts and locks, and nothing of what a stage does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from harness.core.errors import StageError
from harness.core.memory import Need, Room
from harness.core.outcome import Outcome
from harness.engine import tasks
from harness.engine.host import Host
from harness.engine.worker import JobResult
from harness.suite.schema import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a stage says while it works.

    Attributes:
        stage: ``exporting``, ``converting``, ``running``, …
        subject: Component or case.
        detail: Opset, size, sample.

    """

    stage: str
    subject: str
    detail: str


class Workshop:
    """Runs stages in child processes; usable from several threads.

    Args:
        timeout_s: Limit of one stage.
        on_progress: Told what the stages do, from several threads.
        memory_gib: What stages may take: None for what there is, 0 for anything.

    """

    def __init__(
        self,
        timeout_s: float,
        on_progress: Callable[[Progress], None] | None = None,
        memory_gib: float | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._room = Room(memory_gib)
        self.memory_gib = memory_gib
        self._on_progress = on_progress
        self._idle: dict[str, list[Host]] = {}
        self._all: list[Host] = []
        self._closed = False
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}
        self._failed: dict[str, StageError] = {}

    @classmethod
    def of(
        cls, limits: Limits, on_progress: Callable[[Progress], None] | None = None
    ) -> Workshop:
        """Return one that keeps to a suite's limits, memory as well as time."""
        return cls(limits.timeout_s, on_progress, limits.memory_gib)

    def close(self) -> None:
        """End every child process; jobs that are asked for later are given up."""
        with self._lock:
            self._closed = True
            hosts, self._all = self._all, []
        for host in hosts:
            host.close()

    def rest(self) -> None:
        """End the processes of idle hosts; a later job starts them again.

        They hold what they have imported, and a session of many suites has many.
        """
        with self._lock:
            for host in chain.from_iterable(self._idle.values()):
                host.close()

    def job(
        self,
        host_name: str,
        function: str,
        *arguments: object,
        subject: str,
        label: str,
        failure: Outcome,
        need: Need | None = None,
    ) -> JobResult:
        """Run a stage in a child process of an idle host, or of a new one.

        Args:
            host_name: One that `tasks.preload` knows.
            function: One of `tasks`.
            *arguments: Of that function.
            subject: What it works on, for progress.
            label: Begins every message.
            failure: Outcome of an exception that says none of its own.
            need: Memory that it is forecast to take; None for an unknown amount.

        Raises:
            ParityError: As `Host.run`, or there is too little memory.

        """
        with self._room.taken(need):
            return self._job(host_name, function, arguments, subject, label, failure)

    def _job(  # noqa: PLR0917  # as `job`
        self,
        host_name: str,
        function: str,
        arguments: tuple[object, ...],
        subject: str,
        label: str,
        failure: Outcome,
    ) -> JobResult:
        with self._lock:
            idle = self._idle.setdefault(host_name, [])
            if self._closed:
                msg = f"{label}: given up, the run was stopped."
                raise StageError(msg, outcome=Outcome.RUN)
            host = idle.pop() if idle else None
            if host is None:
                host = Host(host_name, tasks.preload(host_name))
                self._all.append(host)
        try:
            return host.run(
                function,
                *arguments,
                timeout_s=self._timeout_s,
                label=label,
                failure=failure,
                on_progress=self._relay,
            )
        finally:
            self._tell(Progress(stage="done", subject=subject, detail=""))
            with self._lock:
                self._idle[host_name].append(host)

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[None]:
        """Let one thread make a thing; keep a failure, so that it happens once."""
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            if name in self._failed:
                raise self._failed[name]
            try:
                yield
            except StageError as error:
                self._failed[name] = error
                raise

    def _relay(self, stage: str, subject: str, detail: str) -> None:
        """Pass on what a stage said from its process."""
        self._tell(Progress(stage=stage, subject=subject, detail=detail))

    def _tell(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)
