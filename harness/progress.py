"""What the stages are doing, while they do it: one live line, and a line for each
long stage when it ends.

On a terminal the live line moves; in a log file only ended stages appear, each once.
"""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TextIO

from harness.pipeline import Progress

LONG_S = 2.0
"""A stage that took longer leaves a line behind."""

_TICK_S = 0.5
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lane:
    """What one component or case is at, and since when."""

    progress: Progress
    since_s: float = field(default_factory=time.monotonic)


class ProgressLines:
    """Shows stages on a stream; told of them from any thread.

    Args:
        stream: Where to write.
        live: Whether the stream is a terminal that a line may move on.
        lasting: Whether ended stages leave a line; off while others write there.

    """

    def __init__(self, stream: TextIO, *, live: bool, lasting: bool = True) -> None:
        self._stream = stream
        self._live = live
        self.lasting = lasting
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def tell(self, progress: Progress) -> None:
        """Take note that a subject entered a stage, or ended (stage ``done``)."""
        with self._lock:
            lane = self._lanes.get(progress.subject)
            same = lane is not None and lane.progress.stage == progress.stage
            if lane is not None and same:
                self._lanes[progress.subject] = replace(lane, progress=progress)
                return
            if lane is not None:
                self._leave(lane)
            if progress.stage == "done":
                self._lanes.pop(progress.subject, None)
            else:
                self._lanes[progress.subject] = _Lane(progress=progress)
            if self._live and self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, daemon=True)
                self._ticker.start()

    def line(self, text: str) -> None:
        """Write a line of the caller's own, above the moving one."""
        with self._lock:
            self._write(f"{_CLEAR if self._live else ''}{text}\n")

    def close(self) -> None:
        """Stop moving and leave a clean line."""
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
            self._write(_CLEAR)
            self._ticker = None
        self._stop.clear()

    def _leave(self, lane: _Lane) -> None:
        took_s = time.monotonic() - lane.since_s
        if self.lasting and took_s >= LONG_S:
            p = lane.progress
            clear = _CLEAR if self._live else ""
            self._write(
                f"{clear}  {p.stage:<10} {p.subject:<24} {p.detail:<28} {took_s:6.1f} s\n"
            )

    def _tick(self) -> None:
        while not self._stop.wait(_TICK_S):
            with self._lock:
                now = time.monotonic()
                parts = [
                    f"{lane.progress.stage} {lane.progress.subject} "
                    f"{lane.progress.detail} {now - lane.since_s:.0f} s"
                    for lane in self._lanes.values()
                    if now - lane.since_s >= _TICK_S
                ]
                room = max(20, shutil.get_terminal_size().columns // 2 - 4)
                text = " · ".join(parts)[:room] if parts else ""
                self._write(f"{_SAVE}{_CLEAR}  {text}{_RESTORE}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
