"""A signal that asks a process to end raises KeyboardInterrupt once.

People press Ctrl-C several times, and whoever cancels a job may send several signals. A
second KeyboardInterrupt would end the clean-up, and one at the end of the process comes
out of Python's own functions, as a traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_ASKING: Final = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C sends the first, a CI that cancels a job the second, a closed terminal the
third. Windows has no SIGHUP."""

_QUICK_S: Final = 3.0
"""A Ctrl-C so soon after the last one, in seconds, asks for what is under way."""

Handler = Callable[[int, FrameType | None], object] | int | None

_asked = threading.Event()
_was_asked = threading.Event()
_codes: list[int] = []
"""Exit codes that `end_by_signals` was given; the last one counts."""


def is_asked() -> bool:
    """Whether this process has been asked to end; only its main thread is told."""
    return _asked.is_set()


class _Stop:
    """Turns signals into one KeyboardInterrupt, and a later Ctrl-C into another."""

    def __init__(self) -> None:
        self._owner, self._asked_s = os.getpid(), -_QUICK_S

    def interrupt(self, number: int, _: FrameType | None) -> None:
        """Handle a signal while the work is done, and while it is cleaned up."""
        if os.getpid() != self._owner:  # a fork of this process ends as any other
            _end_by(number)
        elif not _asked.is_set() or (number == signal.SIGINT and not self._is_quick()):
            self._asked_s = time.monotonic()
            _asked.set()
            _was_asked.set()
            raise KeyboardInterrupt

    def last(self, number: int, frame: FrameType | None) -> None:
        """Handle a Ctrl-C after that; it may be of those that ended the work."""
        if not self._is_quick():
            signal.default_int_handler(number, frame)

    def _is_quick(self) -> bool:
        return time.monotonic() - self._asked_s < _QUICK_S


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt once in the block.

    By default the last two end the process at once, so what ended would have no report,
    and temporary folders would stay. A later Ctrl-C is ignored for some seconds, and
    then raises once more, because a clean-up may hang. A signal that is ignored
    (`nohup`) or that somebody else handles is left alone. Only the main thread can
    handle signals; in another one the block does nothing more.
    """
    stop, before = _Stop(), _free_handlers()
    for number in before:
        signal.signal(number, stop.interrupt)
    try:
        yield
    finally:
        if _asked.is_set() and before.get(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = stop.last
            atexit.register(_ignore)
        for number, handler in before.items():
            signal.signal(number, handler)
        if before:
            _asked.clear()


def end_by_signals(code: int, words: str = "") -> None:
    """Let the signals end this process at once, from now on, with an exit code.

    So it can be asked to end while it begins, and when it has done its work. A
    KeyboardInterrupt has no place there where somebody would take it.
    """
    owner = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            _end_by(number)
        if words:
            with suppress(OSError):
                os.write(2, f"{words}\n".encode())
        os._exit(code)

    end.is_ours = True  # type: ignore[attr-defined]
    for number in _free_handlers():
        signal.signal(number, end)
    if not _codes:
        atexit.register(_leave)  # Python calls the first of them last
    _codes.append(code)


def _leave() -> None:
    """End a process that was asked to, after everything else has ended.

    Python would still reset its signals, and die by the next one. It would die by
    SIGINT also where KeyboardInterrupt came out of an ``exec``, whoever took it.
    """
    _ignore()
    if _was_asked.is_set():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # it may be closed
                stream.flush()
        os._exit(_codes[-1])


def _ignore() -> None:
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)


def _numbers() -> list[int]:
    return [getattr(signal, name) for name in _ASKING if hasattr(signal, name)]


def _free_handlers() -> dict[int, Handler]:
    """Return the signals that have a handler of Python's own, or of this module."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found: dict[int, Handler] = {one: signal.getsignal(one) for one in _numbers()}
    usual = {signal.SIG_DFL, signal.default_int_handler}
    return {
        number: handler
        for number, handler in found.items()
        if handler in usual or hasattr(handler, "is_ours")
    }


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
