"""Keep the beginning and the end of what a program prints, while it prints.

A program that floods its output must fill neither memory nor a disk nor a report. So
each child process prints into a pipe, and its parent keeps two short pieces.
"""

from __future__ import annotations

import os
from typing import IO, Final

KEPT_BYTES: Final = 16 << 10
"""How much is kept of the beginning, which says what there is, and of the end."""

_BLOCK_BYTES: Final = 1 << 16
_AT_ONCE: Final = 64
"""Blocks that one `read` takes at most, so that a flood does not keep its reader."""


def unblocked(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return the pipe of a process without a buffer, so that no read of it waits."""
    if pipe is None:
        msg = "the process has no pipe"
        raise TypeError(msg)
    os.set_blocking(pipe.fileno(), False)
    return pipe


class KeptLog:
    """The beginning and the end of what a program prints, of `KEPT_BYTES` each."""

    def __init__(self) -> None:
        self._first, self._last, self._size = b"", b"", 0

    def add(self, data: bytes) -> None:
        """Add what the program printed next."""
        room = KEPT_BYTES - len(self._first)
        self._size += len(data)
        self._first += data[:room]
        self._last = (self._last + data[room:])[-KEPT_BYTES:]

    def read(self, pipe: IO[bytes]) -> bool:
        """Add what an `unblocked` pipe has; return False at its end."""
        for _ in range(_AT_ONCE):
            data = pipe.read(_BLOCK_BYTES)
            if not data:
                return data is None  # it is empty, and has not ended
            self.add(data)
        return True

    @property
    def text(self) -> str:
        """What is kept; where something is left out, a line says how much."""
        left_out = self._size - len(self._first) - len(self._last)
        cut = f"\n… {left_out:,} bytes are left out here …\n".encode()
        whole = self._first + (cut if left_out else b"") + self._last
        return whole.decode(errors="backslashreplace")
