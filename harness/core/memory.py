"""Memory: what there is, and where stages ask for theirs before they start."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.core.errors import StageError
from harness.core.outcome import Outcome

GIB = 2**30
_CGROUPS = (
    # Version 2, then version 1.
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
_WAY_OUT = (
    "Take smaller [[shapes]] or a smaller batch, one component at a time with "
    "--jobs 1, or a machine with more memory; `memory_gib` under [limits] says how "
    "much may be taken, 0 that nothing is to be refused"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a stage is forecast to take.

    Attributes:
        stage: In words: ``converting unet to MNN``.
        size_bytes: Largest resident set; the least that is possible.
        reason: What that is made of, in words.
        most_bytes: What it takes where there is room, if that is more.

    """

    stage: str
    size_bytes: int
    reason: str
    most_bytes: int = 0


def installed_bytes() -> int:
    """Return what there is of memory, taken or not, a container's limit included."""
    most = int(psutil.virtual_memory().total)
    for limit, _ in _CGROUPS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            most = min(most, int(Path(limit).read_text()))
    return most


def available_bytes() -> int:
    """Return what can still be taken without swapping, a container's limit included."""
    free = int(psutil.virtual_memory().available)
    for limit, used in _CGROUPS:
        try:
            rest = int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        free = min(free, max(rest, 0))
    return free


class Room:
    """Lets stages in while their forecasts fit together; usable from several threads.

    Args:
        limit_gib: What may be taken: None for what is available, 0 to let all in.

    """

    def __init__(self, limit_gib: float | None = None) -> None:
        self._limit_gib = limit_gib
        self._budget = 0
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, need: Need | None) -> Iterator[None]:
        """Wait until a stage fits beside the others, and hold its part meanwhile.

        One that would take more where there is room has all of it to itself.

        Raises:
            StageError: It would not fit if it were alone.

        """
        if need is None or self._limit_gib == 0:
            yield
            return
        with self._changed:
            while True:
                if not self._held:
                    self._budget = self._available()
                    self._refuse(need)
                part = max(need.size_bytes, min(need.most_bytes, self._budget))
                if self._held + part <= self._budget:
                    break
                self._changed.wait()
            self._held += part
        try:
            yield
        finally:
            with self._changed:
                self._held -= part
                self._changed.notify_all()

    def _available(self) -> int:
        if self._limit_gib is None:
            return available_bytes()
        return int(self._limit_gib * GIB)

    def _refuse(self, need: Need) -> None:
        if need.size_bytes <= self._budget:
            return
        whose = "available" if self._limit_gib is None else "allowed"
        msg = (
            f"{need.stage} is forecast to need {need.size_bytes / GIB:.1f} GiB "
            f"({need.reason}), and {self._budget / GIB:.1f} GiB are {whose}. "
            f"{_WAY_OUT}."
        )
        raise StageError(msg, outcome=Outcome.MEMORY)
