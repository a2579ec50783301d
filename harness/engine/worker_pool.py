"""Worker processes for stages: each job gets an idle host, each artifact one thread.

This module handles hosts and locks, and does not know what a stage does.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain

from harness.core.errors import StageError
from harness.core.memory import MemoryBudget, Need, available_bytes
from harness.core.outcome import Outcome
from harness.engine.host import Host
from harness.engine.preload import preload
from harness.engine.worker import JobResult
from harness.suite.schema import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a stage.

    Attributes:
        stage: ``exporting``, ``converting``, ``running``, …
        subject: The component or case.
        detail: The opset, size or sample.
        worker: Process on another machine that is at it; empty here.
        on_target: Whether it runs on a target, whose time may be an emulator's.

    """

    stage: str
    subject: str
    detail: str
    worker: str = ""
    on_target: bool = False


_KEPT = 6
"""Number of idle hosts that this process keeps; PyTorch's has 0.7 GB, others 0.3."""

_kept: list[Host] = []
_keeping = threading.Lock()


_seconds: ContextVar[dict[str, float]] = ContextVar("seconds")


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Give a table that gets the seconds of this thread's stages, by their kind."""
    token = _seconds.set({})
    try:
        yield _seconds.get()
    finally:
        _seconds.reset(token)


def add_seconds(kind: str, seconds: float) -> None:
    """Add seconds of a stage to the table of `timed`, if there is one."""
    table = _seconds.get(None)
    if table is not None:
        table[kind] = table.get(kind, 0.0) + seconds


def _host_of(name: str) -> Host:
    """Return a kept host of the same kind, or a new one."""
    new = Host(name, preload(name))
    with _keeping:
        for host in reversed(_kept):
            if host.kind == new.kind:
                _kept.remove(host)
                return host
    return new


def _keep(hosts: Iterable[Host]) -> None:
    """Keep idle hosts for the next pool, and end those that are too many.

    A host needs seconds to import what it knows, and a process may run many suites, one
    after another. The oldest of the most frequent name is ended first.
    """
    with _keeping:
        _kept.extend(host for host in hosts if host.is_running)
        while len(_kept) > _KEPT:
            counts = Counter(host.name for host in _kept)
            extra = max(_kept, key=lambda host: counts[host.name])
            _kept.remove(extra)
            extra.close()


def _make_room(need: Need | None) -> None:
    """End the kept hosts, if a stage needs more memory than they leave."""
    if _kept and need is not None and need.size_bytes > available_bytes():
        end_kept()


def end_kept() -> None:
    """End the kept hosts, so that the next stage starts a new process."""
    with _keeping:
        while _kept:
            _kept.pop().close()


class WorkerPool:
    """Run stages in child processes; usable from several threads.

    Args:
        timeout_s: Time limit of one stage, in seconds.
        on_progress: Receives the progress of the stages, from several threads.
        memory_gib: Memory that stages may take, in GiB: None for the available
            memory, 0 for no limit.

    """

    def __init__(
        self,
        timeout_s: float,
        on_progress: Callable[[Progress], None] | None = None,
        memory_gib: float | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._memory = MemoryBudget(memory_gib)
        self.memory_gib = memory_gib
        self.on_progress = on_progress
        self._idle: dict[str, list[Host]] = {}
        self._all: list[Host] = []
        self._closed = False
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._failed: dict[Hashable, StageError] = {}

    @classmethod
    def of(
        cls, limits: Limits, on_progress: Callable[[Progress], None] | None = None
    ) -> WorkerPool:
        """Return a pool with a suite's limits on time and memory."""
        return cls(limits.timeout_s, on_progress, limits.memory_gib)

    def begin(self, host_name: str) -> None:
        """Start a host ahead of its first job, because it imports for seconds."""
        with self._lock:
            if self._closed or self._idle.get(host_name):
                return
            host = _host_of(host_name)
            self._all.append(host)
            self._idle[host_name] = [host]
        host.begin()

    def close(self) -> None:
        """End every job; later ones are refused. A few idle hosts are kept."""
        self.rest()
        with self._lock:
            self._closed = True
            hosts, self._all = self._all, []
        for host in hosts:
            host.close()

    def rest(self) -> None:
        """Leave the idle hosts to other pools; a later job takes or starts one."""
        with self._lock:
            idle = chain.from_iterable(self._idle.values())
            # What `close` has taken from this list is about to be ended.
            left = [host for host in idle if host in self._all]
            self._idle.clear()
            self._all = [host for host in self._all if host not in left]
        _keep(left)

    def job(
        self,
        host_name: str,
        function: str,
        *arguments: object,
        subject: str,
        label: str,
        failure: Outcome,
        need: Need | None = None,
        on_target: bool = False,
    ) -> JobResult:
        """Run a stage in a child process of an idle host, or of a new one.

        Args:
            host_name: A host that `preload` knows.
            function: A function of `tasks`.
            *arguments: The arguments of that function.
            subject: The component or case, for progress.
            label: The beginning of every message.
            failure: Outcome of an exception that has none.
            need: The forecast memory; None for an unknown amount.
            on_target: Whether the stage runs on a target, for progress.

        Raises:
            ParityError: For the reasons of `Host.run`, or there is too little memory.

        """

        def tell(stage: str, subject: str, detail: str) -> None:
            if self.on_progress is not None:
                self.on_progress(
                    Progress(
                        stage=stage, subject=subject, detail=detail, on_target=on_target
                    )
                )

        _make_room(need)
        with self._memory.reserve(need):
            with self._lock:
                idle = self._idle.setdefault(host_name, [])
                if self._closed:
                    msg = f"{label}: given up, the run was stopped."
                    raise StageError(msg, outcome=Outcome.RUN)
                host = idle.pop() if idle else None
                if host is None:
                    host = _host_of(host_name)
                    self._all.append(host)
            try:
                return host.run(
                    function,
                    *arguments,
                    timeout_s=self._timeout_s,
                    label=label,
                    failure=failure,
                    on_progress=tell,
                )
            finally:
                tell("done", subject, "")
                with self._lock:
                    self._idle.setdefault(host_name, []).append(host)

    @contextmanager
    def one_at_a_time(self, name: Hashable) -> Iterator[None]:
        """Let one thread make an artifact; keep a failure, so that it happens once."""
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
