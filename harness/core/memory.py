"""Memory: how much there is, and a budget that stages reserve from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.waiting import SLICE_S

MIB = 2**20
GIB = 2**30
_CGROUPS = (
    # Version 2 of cgroups comes first, then version 1.
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
_WAY_OUT = (
    "Take a machine with more memory, or end what else uses it; `memory_gib` under "
    "[limits] says how much may be taken, and 0 that nothing is refused"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The memory that a stage is forecast to need.

    Attributes:
        stage: What the stage does: ``converting unet to MNN``.
        size_bytes: Largest resident set, at its smallest possible value.
        reason: A phrase that lists the parts of `size_bytes`.
        most_bytes: Bytes that it uses if there is enough memory, if that is more.

    """

    stage: str
    size_bytes: int
    reason: str
    most_bytes: int = 0


def installed_bytes() -> int:
    """Return the total memory, in use or free; a container's limit counts."""
    limits = [limit for limit, _ in _cgroups()]
    return min([int(psutil.virtual_memory().total), *limits])


def available_bytes() -> int:
    """Return the bytes that are free without swapping; a container's limit counts."""
    rests = [max(limit - used, 0) for limit, used in _cgroups()]
    return min([int(psutil.virtual_memory().available), *rests])


def _cgroups() -> Iterator[tuple[int, int]]:
    """Yield the limit and the use of each control group of this process."""
    for limit, used in _CGROUPS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            yield int(Path(limit).read_text()), int(Path(used).read_text())


def budget_bytes(limit_gib: float | None) -> int:
    """Return the bytes that stages may use: a limit, or all that is available."""
    return available_bytes() if limit_gib is None else int(limit_gib * GIB)


class MemoryBudget:
    """Starts stages while their forecasts fit together; it is thread-safe.

    Args:
        limit_gib: Memory that may be used, in GiB. None means what is available; 0
            means that there is no limit.

    """

    def __init__(self, limit_gib: float | None = None) -> None:
        self._limit_gib = limit_gib
        self._budget = 0
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, need: Need | None) -> Iterator[None]:
        """Wait until a stage fits beside the others, and reserve its memory.

        A stage whose `Need.most_bytes` exceeds the budget reserves the whole budget.

        Raises:
            StageError: The stage would not fit even if it were alone.

        """
        if need is None or self._limit_gib == 0:
            yield
            return
        with self._changed:
            while True:
                if not self._held:
                    self._budget = budget_bytes(self._limit_gib)
                    self._refuse(need)
                part = max(need.size_bytes, min(need.most_bytes, self._budget))
                if self._held + part <= self._budget:
                    break
                self._changed.wait(SLICE_S)
            self._held += part
        try:
            yield
        finally:
            with self._changed:
                self._held -= part
                self._changed.notify_all()

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
