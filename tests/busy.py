"""Work that takes the processor from what is timed beside it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_SPIN = "print(flush=True)\nwhile True: pass"


@contextmanager
def busy_neighbours() -> Iterator[None]:
    """Keep every core busy for the length of a ``with``."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            neighbour = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", _SPIN], stdout=subprocess.PIPE)
            )
            stack.callback(neighbour.kill)
            assert neighbour.stdout is not None
            neighbour.stdout.readline()  # it has begun
        yield
