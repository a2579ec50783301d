"""Whether a measured time is reliable, and its spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from harness.core.text import count

QUIET = 0.05
"""Largest share of the processor time that other work may take for a time to be
reliable; see `benchmarks/bench_times.py`."""


def quartiles(runs: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of runs, between the ends of their middle half.

    >>> quartiles([4.0]), quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    ((4.0, 4.0, 4.0), (2.0, 3.0, 4.0))
    """
    if len(runs) == 1:
        return runs[0], runs[0], runs[0]
    low, middle, high = statistics.quantiles(runs, n=4, method="inclusive")
    return low, middle, high


def is_disturbed(withheld: float | None) -> bool:
    """Return whether other work took too much of the processor for a reliable time."""
    return withheld is not None and withheld > QUIET


def disturbed_words(shares: Iterable[float | None]) -> str:
    """Return a sentence about rows that other work disturbed; empty for none.

    >>> disturbed_words([0.0, 0.33, None])[:52]
    'other work took up to 33% of the processor time that'
    """
    disturbed = [share for share in shares if share and is_disturbed(share)]
    if not disturbed:
        return ""
    return (
        f"other work took up to {max(disturbed):.0%} of the processor time that "
        f"{count(len(disturbed), 'row')} asked for: the gate judges no such time; time "
        "again on a quiet machine"
    )
