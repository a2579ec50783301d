"""What counts as a change: every threshold that one run is held to another by.

The unit of an error is the noise floor, which is measured in every reference run. How
far two sound runs may be apart in it was measured too (`benchmarks/bench_noise.py`, on
fixtures/digits): ONNX Runtime and MNN, which share no kernel, in full precision. Of the
same 13,775 layers 99 in 100 differ by less than 5.4 floors in their rms, and by less
than 128 in their largest error; latents by 2.1 and 36, pictures by 5.4 and 100; of 152
outputs 146 by less than 6, and 6 by 7 to 26. Two runs of one build on one machine are
equal to the bit; two processors, which stand in between, were not at hand to measure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from enum import StrEnum

RMS_FLOORS = 6.0
"""An rms that moves by less is rounding."""

PEAK_FLOORS = 128.0
"""A largest error that moves by less is rounding: one element is all it takes."""

RMS_GROWTH = 1.10
"""Where rounding is nothing beside the error, as with int8, a tenth counts."""

PEAK_GROWTH = 1.25
"""And of a largest error a quarter."""

SIZE_GROWTH = 1.02
SIZE_BYTES = 64 * 2**10
"""One build made in two folders differs by 1 %: exporters write paths into files."""

MEMORY_GROWTH = 1.25
MEMORY_BYTES = 32 * 2**20
"""One build's peaks differ by 17 % between a run by pytest and one by `parity run`."""

TIME_GROWTH = 1.10
LEAST_RUNS = 5
"""Fewer measurements have no quartiles to speak of."""

SAME_REFERENCE = 1e-3
"""References of the same inputs and weights differ by rounding, which is far less."""


class Change(StrEnum):
    """What became of something between two runs."""

    NEW = "new"
    GONE = "gone"
    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    INCOMPARABLE = "incomparable"


MOVES = {"rms": (RMS_FLOORS, RMS_GROWTH), "atol": (PEAK_FLOORS, PEAK_GROWTH)}
"""Metric to how many noise floors, and which growth, two runs may be apart in it."""


def of_metric(name: str, before: float, after: float, floor: float | None) -> Change:
    """Compare a metric of `MOVES` with that of an earlier run.

    >>> of_metric("rms", 1.0, 6.5, 1.0), of_metric("rms", 1.0, 7.5, 1.0)
    (<Change.SAME: 'same'>, <Change.WORSE: 'worse'>)
    >>> of_metric("rms", 1e4, 1.05e4, 1.0)
    <Change.SAME: 'same'>
    """
    floors, growth = MOVES[name]
    return _moved(before, after, (floor or 0.0) * floors, growth)


def of_size(before: int, after: int) -> Change:
    """Hold the size of deployed files against another."""
    return _moved(before, after, SIZE_BYTES, SIZE_GROWTH)


def of_memory(before: int, after: int) -> Change:
    """Hold one process's peak against another's on the same machine."""
    return _moved(before, after, MEMORY_BYTES, MEMORY_GROWTH)


def of_times(before: Sequence[float], after: Sequence[float]) -> Change:
    """Hold repeated measurements against others made on the same machine.

    The middle halves must be apart as well as the medians: a neighbour who takes the
    processor for a while moves some measurements, and a slower build moves them all.

    >>> of_times([10, 11, 12, 11, 10], [14, 15, 14, 13, 15])
    <Change.WORSE: 'worse'>
    >>> of_times([10, 11, 12, 11, 10], [10, 11, 30, 12, 40])
    <Change.SAME: 'same'>
    >>> of_times([10.0], [20.0])
    <Change.INCOMPARABLE: 'incomparable'>
    """
    if min(len(before), len(after)) < LEAST_RUNS:
        return Change.INCOMPARABLE
    low, middle, high = statistics.quantiles(before, n=4, method="inclusive")
    other_low, other, other_high = statistics.quantiles(after, n=4, method="inclusive")
    if other_low > high or other_high < low:
        return _moved(middle, other, 0.0, TIME_GROWTH)
    return Change.SAME


def agreed(changes: Iterable[Change]) -> Change:
    """Return what several measures of one thing say together: a change if all do.

    >>> agreed([Change.WORSE, Change.WORSE]), agreed([Change.WORSE, Change.BETTER])
    (<Change.WORSE: 'worse'>, <Change.SAME: 'same'>)
    >>> agreed([Change.SAME, Change.INCOMPARABLE])
    <Change.INCOMPARABLE: 'incomparable'>
    """
    told = set(changes)
    if Change.INCOMPARABLE in told:
        return Change.INCOMPARABLE
    return told.pop() if len(told) == 1 else Change.SAME


def _moved(before: float, after: float, least: float, growth: float) -> Change:
    # What could not be measured is as wrong as can be.
    one, two = (math.inf if math.isnan(value) else value for value in (before, after))
    if one == two:
        return Change.SAME
    small, large = sorted((one, two))
    if not math.isinf(large) and (large - small <= least or large <= small * growth):
        return Change.SAME
    return Change.WORSE if two > one else Change.BETTER
