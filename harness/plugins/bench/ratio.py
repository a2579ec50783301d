"""The ratio of two builds' times, with its spread over the rounds.

Each round times both builds, one directly after the other, so a drift of the machine
changes both times and not their ratio. No distribution of the ratios is assumed: the
spread is the pair of order statistics that contains the true median in 95 of 100
comparisons.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

CONFIDENCE = 0.95


class Pace(StrEnum):
    """The result of a comparison of two times: slower, faster, the same or unknown."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference beyond the spread"
    UNKNOWN = "too few rounds to tell"


class Ratio(NamedTuple):
    """The ratio of two times: the median of the rounds' ratios, and its spread.

    The spread of fewer than six rounds contains the true median in less than 95 of 100
    comparisons, whatever the ratios are. Then its ends are 0 and infinity.
    """

    value: float
    low: float
    high: float

    @property
    def pace(self) -> Pace:
        """The result; slower or faster only if the whole spread is on one side of 1."""
        if math.isinf(self.high):
            return Pace.UNKNOWN
        if self.low > 1.0:
            return Pace.SLOWER
        return Pace.FASTER if self.high < 1.0 else Pace.SAME

    def __str__(self) -> str:
        """Return the ratio, with its spread if there are enough rounds for one."""
        if self.pace is Pace.UNKNOWN:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


def ratio_of(ratios: Sequence[float]) -> Ratio:
    """Return the median ratio of all rounds, and its spread.

    Without the `cut` lowest and the `cut` highest ratios, the rest excludes the true
    median only if at most `cut` ratios are on one side of it. Each ratio is on either
    side with probability one half.

    >>> ratio_of([2.0, 2.2, 2.0, 2.0, 2.1, 2.0]).pace
    <Pace.SLOWER: 'slower'>
    >>> ratio_of([1.0, 2.0, 3.0])
    Ratio(value=2.0, low=0.0, high=inf)
    """
    ordered = sorted(ratios)
    number, outside, (low, high) = len(ordered), 0.0, (0.0, math.inf)
    for cut in range((number + 1) // 2):
        outside += 2 * math.comb(number, cut) / 2**number
        if outside > 1 - CONFIDENCE:
            break
        low, high = ordered[cut], ordered[-1 - cut]
    return Ratio(statistics.median(ratios), low, high)
