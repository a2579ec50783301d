"""What the processor does for this process: its time, and the time it waits for.

A thread that is ready to run waits while another has the core. Linux counts that for
each thread (`/proc/PID/task/TID/schedstat`, second figure, in nanoseconds), and what
the host of a virtual machine takes as stolen time. On an idle machine both are nothing
while there are no more threads than cores; with more they wait for one another, and
nothing tells that from other work. No other system counts it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this process at one moment, in seconds.

    Attributes:
        wall: Time.
        used: Processor time, of all threads.
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
