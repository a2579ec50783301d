"""Wait for what other threads make, in slices, so that Ctrl-C always ends the wait.

CPython loses a signal that comes just before the main thread begins to wait for a lock.
It handles the signal when that wait ends, which may take as long as a stage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

SLICE_S = 0.5
"""The longest time that the main thread waits at once, in seconds."""

Made = TypeVar("Made")


def awaited(future: Future[Made]) -> Made:
    """Wait for a future, and return its result or raise its error."""
    while True:
        try:
            return future.result(SLICE_S)
        except TimeoutError:  # of this slice, or of what the future stands for
            if future.done():
                return future.result()


def as_they_end(
    futures: Collection[Future[Made]], within_s: float = math.inf
) -> Iterator[Future[Made]]:
    """Yield each future as soon as it has ended, for at most some seconds."""
    left, end_s = set(futures), time.monotonic() + within_s
    while left:
        rest_s = max(0.0, end_s - time.monotonic())
        ended, left = wait(left, min(SLICE_S, rest_s), FIRST_COMPLETED)
        yield from ended
        if not rest_s:
            return
