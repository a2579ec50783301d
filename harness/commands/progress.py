"""Progress of the stages: one live line, and a lasting line for each long stage.

On a terminal the live line is updated. In a log file each ended stage appears once, and
a stage that goes on appears once a minute. What runs on a target has
no time there, because an emulator's time is no time of a phone.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

from harness.core.shown import shown
from harness.core.text import count, in_seconds
from harness.engine.worker import DAMAGED

if TYPE_CHECKING:
    from harness.core.record import Key
    from harness.engine.engine import Engine
    from harness.engine.worker_pool import Progress
    from harness.suite.suite import Suite

LONG_S = 2.0
"""A stage that took longer than this leaves a line."""

STILL_S = 60.0
"""Seconds between the lines of a long stage, if there is no live line."""

_TICK_S = 0.5
_NARROW = 24
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"


@dataclass(slots=True)
class _Lane:
    """The stage of one thread's job, its start, and the time of its last line."""

    progress: Progress
    since_s: float
    said_s: float


class Course:
    """How many cases of a run have ended, and how long the others may take.

    `costs_s` are seconds that cases took in an earlier run; it may lack some.
    """

    def __init__(self, cases: Iterable[Key], costs_s: Mapping[Key, float]) -> None:
        self._left = dict.fromkeys(cases)
        self._count = len(self._left)
        self._costs_s = {case: costs_s[case] for case in self._left if case in costs_s}
        self._since_s = time.monotonic()

    def end(self, case: Key) -> None:
        """Count a case that has ended."""
        self._left.pop(case, None)

    def words(self, now_s: float) -> str:
        """Return ``3 of 20 cases, about 40 s left``.

        What is left takes as long, measured by an earlier run's times, as what has
        ended did. Nothing is said about time where most cases have no such time.
        """
        left_s = sum(self._costs_s.get(case, 0.0) for case in self._left)
        ended_s = sum(self._costs_s.values()) - left_s
        words = f"{self._count - len(self._left)} of {count(self._count, 'case')}"
        if ended_s > 0.0 and 2 * len(self._costs_s) > self._count:
            seconds = (now_s - self._since_s) * left_s / ended_s
            words += f", about {in_seconds(seconds)} left"
        return words


def columns() -> int:
    """Return the width of the terminal."""
    return shutil.get_terminal_size().columns


def moves(stream: TextIO) -> bool:
    """Whether a stream can update a line: it is a terminal, and not a dumb one."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def step_line(about: str = "") -> Callable[[str], None]:
    """Return a function that shows the current step on a terminal; "" clears it."""
    live = moves(sys.stderr)

    def say(step: str) -> None:
        if live:
            text = shown(f"  {about}{step}")[: max(0, columns() - 1)] if step else ""
            click.echo(f"\x1b[2K{text}\r", err=True, nl=False)

    return say


class ProgressLines:
    """Show stages on a stream; usable from several threads.

    Args:
        stream: The stream to write to.
        live: Whether the stream can update a line; None asks the stream.
        room: Number of free columns for the live line, right of the cursor.
        lead: Returns what to write before a lasting line, to begin a line.

    Attributes:
        lasting: Whether ended stages leave a line.
        course: How much of the whole is done, which the live line begins with.

    """

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool | None = None,
        room: Callable[[], int] = columns,
        lead: Callable[[], str] = str,
    ) -> None:
        self.lasting = True
        self.course: Course | None = None
        self._stream = stream
        self._lead = lead
        self._clear = _CLEAR if (moves(stream) if live is None else live) else ""
        self._room = room
        self._lanes: dict[int | str, _Lane] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def tell(self, progress: Progress) -> None:
        """Record that the calling thread's job entered a stage, or is ``done``."""
        now_s, mine = time.monotonic(), progress.worker or threading.get_ident()
        with self._lock:
            if self._stop.is_set():
                return
            if progress.stage == DAMAGED:  # a notice, which takes no time
                self._leave(_Lane(progress, now_s, now_s), now_s)
                return
            lane = self._lanes.get(mine)
            if lane is not None and _same(lane.progress, progress):
                lane.progress = progress
                return
            # The caller prints a line for each case that ran.
            if (
                lane is not None
                and lane.progress.stage != "running"
                and now_s - lane.since_s >= LONG_S
            ):
                self._leave(lane, now_s)
            self._lanes.pop(mine, None)
            if progress.stage != "done":
                self._lanes[mine] = _Lane(progress, now_s, now_s)
            if (self._clear or self.lasting) and self._ticker.ident is None:
                self._ticker.start()

    def line(self, text: str) -> None:
        """Write a line of the caller above the live line; it is made by `styled`.

        Raises:
            BrokenPipeError: Nobody reads the stream any more.

        """
        with self._lock:
            try:
                self._stream.write(f"{self._clear}{text}\n")
                self._stream.flush()
            except OSError as error:
                if error.errno != errno.EIO:  # a closed terminal's
                    raise
                raise BrokenPipeError(errno.EPIPE, error.strerror) from error

    def clear(self) -> None:
        """Remove the live line until its next update."""
        with self._lock:
            if self._ticker.is_alive():
                self._write(self._clear)

    def close(self) -> None:
        """Stop, and leave a clean line."""
        self._stop.set()
        if self._ticker.is_alive():
            self._ticker.join()
            self._write(self._clear)

    def _leave(self, lane: _Lane, now_s: float, state: str = "") -> None:
        """Write a lasting line."""
        if self.lasting:
            p, took_s = lane.progress, now_s - lane.since_s
            about = shown(f"  {p.stage:<10} {p.subject:<34} {p.detail:<34}")
            took = "" if p.on_target else f"{took_s:7.1f} s"
            lead = self._lead()
            self._write(f"{self._clear}{lead}{f'{about} {took}'.rstrip()}{state}\n")

    def _tick(self) -> None:
        while not self._stop.wait(_TICK_S):
            with self._lock:
                now_s = time.monotonic()
                if not self._clear:
                    for lane in self._lanes.values():
                        # A node that is lost never ends its stages.
                        if not lane.progress.worker and now_s - lane.said_s >= STILL_S:
                            lane.said_s = now_s
                            self._leave(lane, now_s, " so far")
                    continue
                parts = [] if self.course is None else [self.course.words(now_s)]
                parts += [
                    " ".join(
                        [p.stage, p.subject, p.detail]
                        + ([] if p.on_target else [f"{took_s:.0f} s"])
                    )
                    for lane in self._lanes.values()
                    for p, took_s in [(lane.progress, now_s - lane.since_s)]
                    if took_s >= _TICK_S
                ]
                text = shown(" · ".join(parts))
                room = self._room() - 3
                text = text[:room] if room >= _NARROW else ""
                self._write(f"{_SAVE}{_CLEAR}  {text}{_RESTORE}")

    def _write(self, text: str) -> None:
        if text:  # a stream that cannot update a line may be closed at the end
            # A job must not fail because nobody reads its progress.
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()


@contextmanager
def shown_engine(suite: Suite, store: str) -> Iterator[Engine]:
    """Yield an engine whose progress is shown; then clean up the store and screen."""
    from harness.engine.engine import Engine
    from harness.engine.run import open_store

    progress = ProgressLines(sys.stderr)
    opened = open_store(store)
    try:
        with Engine(opened, suite.limits, on_progress=progress.tell) as engine:
            yield engine
    finally:
        opened.sweep()
        progress.close()


def _same(one: Progress, two: Progress) -> bool:
    return (one.stage, one.subject) == (two.stage, two.subject)
