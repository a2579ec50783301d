"""A signal that asks a process to end does what Ctrl-C does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
    owner = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> None:
        # Several may be sent, and the second must not end the clean-up.
        ours = os.getpid() == owner
        for one in numbers:
            signal.signal(one, signal.SIG_IGN if ours else signal.SIG_DFL)
        if ours:
            raise KeyboardInterrupt
        signal.raise_signal(number)  # a fork of this process ends as any other

    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
