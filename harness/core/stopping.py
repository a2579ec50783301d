"""A signal that asks a process to end does what Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ASKING = ("SIGTERM", "SIGHUP")
"""A CI that cancels a job and `timeout` send the first, a closed terminal the second.

Windows has no SIGHUP.
"""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt in the block.

    By default they end the process at once, so what ended would have no report, and
    temporary folders would stay. A signal that is ignored (`nohup`) or that somebody
    else handles is left alone. Only the main thread can handle signals; in another one
    the block does nothing more.
    """
    numbers = [getattr(signal, name) for name in _ASKING if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    numbers = [one for one in numbers if signal.getsignal(one) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    # The kernel and the shell may both send it. The second must not end the clean-up.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
