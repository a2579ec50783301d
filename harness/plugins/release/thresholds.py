"""Every threshold for a change between two runs, and the measurement behind it.

The unit of an error is the noise floor, which is measured in every reference run. How
much two sound runs may differ in this unit was measured too
(`benchmarks/bench_noise.py`, on fixtures/digits), between ONNX Runtime and MNN, which
share no kernel, in full precision. Of the same 13,775 layers 99 in 100 differ by less
than 5.4 floors in their rms, and by less than 128 in their largest error. Latents
differ by less than 2.1 and 36, pictures by less than 5.4 and 100. Of 152 outputs 146
differ by less than 6, and 6 by 7 to 26. Two runs of one build on one machine are equal
to the bit.

Two processors are between these two cases. One build of fixtures/digits was run on an
Intel Xeon (family 6, model 167) and an AMD EPYC (family 26, model 2). In full precision
no value of ONNX Runtime and MNN differed by more than the floors above. Neither did
MNN's variants with weights of 16, 8 and 4 bits by more than 0.5 %. ONNX Runtime's fp16
and int8-weights are different: it computes in fewer bits, and rounds by what the
processor has. Of 16,842 of their layers and 149 of their outputs, whose error is far
above the floors, the rms differed by up to 1.22 times (1.11 in 99 of 100), and the
largest error by up to 2.51 times (1.5 in 99 of 100).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from enum import StrEnum

RMS_FLOORS = 6.0
"""Number of floors below which a change of the rms is rounding."""

PEAK_FLOORS = 128.0
"""Number of floors below which a change of the largest error is rounding.

One element alone can change the largest error.
"""

RMS_GROWTH = 1.10
"""Growth that counts where rounding is small beside the error, as with int8."""

PEAK_GROWTH = 1.25
"""Growth that counts where rounding is small beside the largest error."""

RMS_GROWTH_ELSEWHERE = 1.5
PEAK_GROWTH_ELSEWHERE = 4.0
"""The same between two processors; a lossy variant's rounding is another there."""

PAIR_SHARE = 0.1
"""Share of its limit below which the error of a pair is not worse."""

SIZE_GROWTH = 1.02
SIZE_BYTES = 64 * 2**10
"""Growth in bytes below which a size is unchanged, beside `SIZE_GROWTH`.

One build made in two folders differs by 1 %: exporters write paths into files.
"""

MEMORY_GROWTH = 1.25
MEMORY_BYTES = 32 * 2**20
"""Growth in bytes below which memory is unchanged, beside `MEMORY_GROWTH`.

One build's peaks differ by 17 % between a run by pytest and one by `parity run`.
"""

TIME_GROWTH = 1.10
"""Growth below which a median is unchanged, however steady the rounds are."""

LEAST_ROUNDS = 5
"""Least number of rounds for a verdict on time.

For two equal builds, five rounds of each are wholly apart in one comparison of 126 (six
rounds in one of 462), for any distribution. With fewer rounds this happens too often.
"""

SAME_REFERENCE = 1e-3
"""Relative difference of the rms below which two references are the same.

References of the same inputs and weights differ by rounding, which is far less.
"""


class Change(StrEnum):
    """The kinds of change of a result between two runs."""

    NEW = "new"
    GONE = "gone"
    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    OPEN = "inconclusive"
    INCOMPARABLE = "incomparable"


MOVES = {
    "rms": (RMS_FLOORS, RMS_GROWTH, RMS_GROWTH_ELSEWHERE),
    "atol": (PEAK_FLOORS, PEAK_GROWTH, PEAK_GROWTH_ELSEWHERE),
}
"""Metric to the noise floors, and the growth, by which it may differ in two runs.

The last number is the growth between two processors."""


def of_metric(
    name: str,
    before: float,
    after: float,
    floor: float | None,
    *,
    elsewhere: bool = False,
) -> Change:
    """Compare a metric of `MOVES` with that of a run before, perhaps made elsewhere.

    Elsewhere means on another processor.

    >>> of_metric("rms", 1.0, 6.5, 1.0), of_metric("rms", 1.0, 7.5, 1.0)
    (<Change.SAME: 'same'>, <Change.WORSE: 'worse'>)
    >>> of_metric("rms", 1e4, 1.05e4, 1.0), of_metric("rms", 1e4, 1.3e4, 1.0)
    (<Change.SAME: 'same'>, <Change.WORSE: 'worse'>)
    >>> of_metric("rms", 1e4, 1.3e4, 1.0, elsewhere=True)
    <Change.SAME: 'same'>
    """
    floors, here, there = MOVES[name]
    return _moved(before, after, (floor or 0.0) * floors, there if elsewhere else here)


def of_size(before: int, after: int) -> Change:
    """Compare the size of deployed files with an earlier run's."""
    return _moved(before, after, SIZE_BYTES, SIZE_GROWTH)


def of_memory(before: int, after: int) -> Change:
    """Compare a process's peak memory with an earlier peak on the same machine."""
    return _moved(before, after, MEMORY_BYTES, MEMORY_GROWTH)


def of_times(before: Sequence[float], after: Sequence[float]) -> Change:
    """Compare the rounds' medians of a time with others made on the same machine.

    Each round is a separate process, and processes of one build differ: by 1.2 to 1.8
    times over the 18 to 27 quiet rounds of each of nine files of fixtures/digits
    (`benchmarks/bench_times.py`, two cores). So every round of one run must be beyond
    every round of the other. Of 4,500 pairs of six rounds drawn from these rounds, 3
    were wholly apart, and 145 had their middle halves apart, with medians that moved by
    a tenth.

    >>> of_times([10, 11, 12, 11, 10], [14, 15, 14, 13, 15])
    <Change.WORSE: 'worse'>
    >>> of_times([10, 10, 10, 10, 14], [14, 14, 14, 14, 10])
    <Change.SAME: 'same'>
    >>> of_times([10.0], [20.0])
    <Change.INCOMPARABLE: 'incomparable'>
    """
    if min(len(before), len(after)) < LEAST_ROUNDS:
        return Change.INCOMPARABLE
    if min(after) > max(before) or max(after) < min(before):
        medians = statistics.median(before), statistics.median(after)
        return _moved(*medians, 0.0, TIME_GROWTH)
    return Change.SAME


def of_shares(before: Sequence[float], after: Sequence[float]) -> Change:
    """Compare the rounds' shares of PyTorch's time with those of another run.

    Shares only confirm the times, and PyTorch's processes differ as well. So only the
    middle halves of the shares must be apart.

    >>> of_shares([0.5, 0.5, 0.5, 0.5, 0.9], [0.7, 0.7, 0.7, 0.7, 0.4])
    <Change.WORSE: 'worse'>
    """
    if min(len(before), len(after)) < LEAST_ROUNDS:
        return Change.INCOMPARABLE
    low, middle, high = statistics.quantiles(before, n=4, method="inclusive")
    other_low, other, other_high = statistics.quantiles(after, n=4, method="inclusive")
    if other_low > high or other_high < low:
        return _moved(middle, other, 0.0, TIME_GROWTH)
    return Change.SAME


def agreed(changes: Iterable[Change]) -> Change:
    """Return the common change of several measures; `SAME` if they do not agree.

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
    # A value that could not be measured counts as infinitely wrong.
    one, two = (math.inf if math.isnan(value) else value for value in (before, after))
    if one == two:
        return Change.SAME
    small, large = sorted((one, two))
    if not math.isinf(large) and (large - small <= least or large <= small * growth):
        return Change.SAME
    return Change.WORSE if two > one else Change.BETTER
