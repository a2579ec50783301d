"""Whether what was timed had the threads that it was given."""

from __future__ import annotations

from collections.abc import Iterable

from harness.report.text import count

_FULL = 0.5
"""Share of the threads that should have been at work; with less, it is worth a word."""


def idle_words(rows: Iterable[tuple[float, int]]) -> str:
    """Return what is to be said of cores at work beside threads; empty for nothing.

    >>> idle_words([(1.9, 2), (0.4, 2)])[:48]
    '1 row kept under half of the threads at work: th'
    """
    idle = [threads for cores, threads in rows if cores < _FULL * threads]
    if not idle:
        return ""
    return (
        f"{count(len(idle), 'row')} kept under half of the threads at work: the "
        "network is too small for them, or the machine was busy with other things"
    )
