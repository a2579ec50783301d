"""What the stages are doing: one live line, and a line for each long stage at its end.

On a terminal the live line moves; in a log file only ended stages appear, each once,
and every few minutes how far a very long one is.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TextIO

from harness.engine.worker_pool import Progress

LONG_S = 2.0
"""A stage that took longer leaves a line behind."""

STILL_S = 180.0
"""How often a stage that goes on leaves a line where none moves."""

_TICK_S = 0.5
_NARROW = 24
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lane:
    """What one thread's job is at, and since when."""

    progress: Progress
    since_s: float = field(default_factory=time.monotonic)
    said_s: float = field(default_factory=time.monotonic)

    def words(self, now_s: float) -> str:
        p = self.progress
        return f"{p.stage} {p.subject} {p.detail} {now_s - self.since_s:.0f} s"


def columns() -> int:
    """Return how wide the terminal is."""
    return shutil.get_terminal_size().columns


def moves(stream: TextIO) -> bool:
    """Whether a line may move on a stream: it is a terminal, and no dumb one."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


class ProgressLines:
    """Shows stages on a stream; told of them from any thread.

    Args:
        stream: Where to write.
        live: Whether a line may move there.
        room: Columns free for the live line, right of the cursor.

    """

    def __init__(
        self, stream: TextIO, *, live: bool, room: Callable[[], int] = columns
    ) -> None:
        self._stream = stream
        self._live = live
        self._room = room
        self._lanes: dict[int, _Lane] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self.lasting = True
        """Whether ended stages leave a line; off while others write there."""

    def tell(self, progress: Progress) -> None:
        """Take note that the calling thread's job entered a stage, or is ``done``."""
        with self._lock:
            if self._stop.is_set():
                return
            mine = threading.get_ident()
            lane = self._lanes.get(mine)
            if lane is not None and _same(lane.progress, progress):
                self._lanes[mine] = self._still(replace(lane, progress=progress))
                return
            if lane is not None:
                self._leave(lane)
            if progress.stage == "done":
                self._lanes.pop(mine, None)
            else:
                self._lanes[mine] = _Lane(progress=progress)
            if self._live and self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, daemon=True)
                self._ticker.start()

    def line(self, text: str) -> None:
        """Write a line of the caller's own, above the moving one."""
        with self._lock:
            self._write(f"{self._clear}{text}\n")

    def clear(self) -> None:
        """Take the live line away until its next move."""
        with self._lock:
            if self._ticker is not None:
                self._write(_CLEAR)

    def close(self) -> None:
        """Stop for good, and leave a clean line."""
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
            self._write(_CLEAR)

    @property
    def _clear(self) -> str:
        return _CLEAR if self._live else ""

    def _leave(self, lane: _Lane) -> None:
        took_s = time.monotonic() - lane.since_s
        # A case that ran has a line of its own.
        if took_s >= LONG_S and lane.progress.stage != "running":
            self._last(lane)

    def _still(self, lane: _Lane) -> _Lane:
        now_s = time.monotonic()
        if self._live or now_s - lane.said_s < STILL_S:
            return lane
        self._last(lane)
        return replace(lane, said_s=now_s)

    def _last(self, lane: _Lane) -> None:
        """Write a line that stays."""
        if self.lasting:
            p, took_s = lane.progress, time.monotonic() - lane.since_s
            about = f"  {p.stage:<10} {p.subject:<34} {p.detail:<34}"
            self._write(f"{self._clear}{about} {took_s:7.1f} s\n")

    def _tick(self) -> None:
        while not self._stop.wait(_TICK_S):
            with self._lock:
                now_s = time.monotonic()
                words = [
                    lane.words(now_s)
                    for lane in self._lanes.values()
                    if now_s - lane.since_s >= _TICK_S
                ]
                room = self._room() - 3
                text = " · ".join(words)[:room] if room >= _NARROW else ""
                self._write(f"{_SAVE}{_CLEAR}  {text}{_RESTORE}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _same(one: Progress, two: Progress) -> bool:
    return (one.stage, one.subject) == (two.stage, two.subject)
