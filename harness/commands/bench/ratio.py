"""One build's time over another's, with the spread that their rounds show.

Each round times both, one right after the other, so what drifts hits both and the
round's ratio does not feel it. Nothing is assumed of how ratios are distributed: the
spread is the order statistics that hold the true median in 95 of 100 comparisons.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CONFIDENCE = 0.95
LEAST_ROUNDS = 6
"""Fewer hold the median in less than 95 of 100, whatever they are."""


class Pace(StrEnum):
    """What a ratio and its spread say."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference beyond the spread"
    UNKNOWN = "too few rounds to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A time over another.

    Attributes:
        value: Median of the rounds' ratios.
        low: Lower end of its spread; 0 where there are too few rounds for one.
        high: Upper end; infinite where there are too few.
        rounds: How many there were.

    """

    value: float
    low: float
    high: float
    rounds: int

    @property
    def pace(self) -> Pace:
        """Slower or faster only where the whole spread is on that side."""
        if self.rounds < LEAST_ROUNDS:
            return Pace.UNKNOWN
        if self.low > 1.0:
            return Pace.SLOWER
        return Pace.FASTER if self.high < 1.0 else Pace.SAME


def ratio_of(times: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return how long something takes beside another, round by round.

    Args:
        times: Median of each round.
        others: The other's median of the same rounds.

    >>> ratio_of([2.0, 2.2, 2.0, 2.0, 2.1, 2.0], [1.0] * 6).pace
    <Pace.SLOWER: 'slower'>
    """
    ratios = [one / other for one, other in zip(times, others, strict=True)]
    low, high = median_interval(ratios)
    return Ratio(
        value=statistics.median(ratios), low=low, high=high, rounds=len(ratios)
    )


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the values between which the true median lies, in 95 of 100 draws.

    With `cut` values left out at either end, it lies outside only if all but fewer
    than `cut` + 1 fell on one side of it: coins that all came up heads.

    >>> median_interval([5.0, 1.0, 4.0, 3.0, 2.0, 6.0])
    (1.0, 6.0)
    >>> median_interval([1.0, 2.0, 3.0])
    (0.0, inf)
    """
    ordered = sorted(values)
    count, outside, interval = len(ordered), 0.0, (0.0, math.inf)
    for cut in range((count + 1) // 2):
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        interval = (ordered[cut], ordered[-1 - cut])
    return interval
