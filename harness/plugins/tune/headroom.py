"""Headroom, and the extent of many comparisons: the worst value for each bound.

Each bound of a tolerance is monotone in one number. So the extent is within a tolerance
exactly if every comparison in it is. Shares are the exception; they are judged
strictly.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from msgspec.structs import replace

from harness.core.comparison import Comparison, Picture
from harness.core.errors import SpecError
from harness.judge.tolerance import Tolerance
from harness.measure.metrics import BOUNDED, METRIC, METRICS, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """The margin that a bound must leave above the worst measurement.

    Attributes:
        factor: The bound divided by the worst value, for noise floors and atol.
        decibels: The margin for signal to error ratios.

    """

    factor: float = 2.0
    decibels: float = 3.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.factor < math.inf or not 0.0 <= self.decibels < math.inf:
            msg = (
                "headroom is a factor of 1 or more and decibels of 0 or more, got "
                f"{self.factor} and {self.decibels}."
            )
            raise SpecError(msg)

    @property
    def half(self) -> Headroom:
        """Half of the headroom, on a logarithmic scale."""
        return Headroom(factor=math.sqrt(self.factor), decibels=self.decibels / 2)

    def __str__(self) -> str:
        """Return the text for a table's provenance lines."""
        return f"headroom {self.factor:g} x or {self.decibels:g} dB"


NONE: Final = Headroom(factor=1.0, decibels=0.0)


def worse(one: Comparison, two: Comparison) -> Comparison:
    """Return a comparison that fails each bound that either of the two fails.

    The positions (indices, worst values) are those of the comparison with more floors.
    """
    base = max(one, two, key=_loudness)
    worst: dict[str, Any] = {
        metric.field: _worse_of(metric, one, two)
        for metric in METRICS
        if not metric.of_pictures
    }
    return replace(
        base,
        count=one.count + two.count,
        finite_count=one.finite_count + two.finite_count,
        nonfinite_expected=one.nonfinite_expected + two.nonfinite_expected,
        nonfinite_actual=one.nonfinite_actual + two.nonfinite_actual,
        nonfinite_mismatched=one.nonfinite_mismatched + two.nonfinite_mismatched,
        # Two constant sides are caused by the input, one constant side by an error.
        expected_constant=False,
        actual_constant=_alone(one) or _alone(two),
        picture=_worse_picture(one, two),
        **worst,
    )


def _worse_picture(one: Comparison, two: Comparison) -> Picture | None:
    """Return a picture with the worse of each number that can be a bound."""
    if one.picture is None or two.picture is None:
        return None
    worst: dict[str, Any] = {
        metric.name: metric.worst(
            getattr(one.picture, metric.name), getattr(two.picture, metric.name)
        )
        for metric in METRICS
        if metric.of_pictures
    }
    return dataclasses.replace(one.picture, **worst)


def _worse_of(
    metric: Metric, one: Comparison, two: Comparison
) -> float | tuple[float, ...] | None:
    left, right = (getattr(side, metric.field) for side in (one, two))
    if isinstance(left, tuple):
        return tuple(map(metric.worst, left, right))
    numbers = [metric.without_error]
    for side, number in ((one, left), (two, right)):
        if number is not None:
            numbers.append(number)
        elif side.max_abs != 0.0:
            # An error whose floor was not measured cannot be checked.
            return None
    return reduce(metric.worst, numbers)


def is_sound(comparison: Comparison) -> bool:
    """Whether a bound can be derived: shapes match and all values are finite."""
    return (
        comparison.expected_shape == comparison.actual_shape
        and comparison.count > 0
        and not comparison.nonfinite_actual
        and not comparison.nonfinite_expected
    )


def needed(
    comparison: Comparison, tolerance: Tolerance, headroom: Headroom = NONE
) -> dict[str, float]:
    """Return the value of each stated bound that leaves the headroom.

    An atol with a share is left out, because the bound itself decides which elements
    the share counts.
    """
    found = {}
    for metric in BOUNDED:
        by_share = metric.name == "atol" and tolerance.share < 1.0
        if tolerance.limit(metric) is None or by_share:
            continue
        value = metric.error(comparison, tolerance.rtol or 0.0)
        found[metric.name] = (
            math.inf
            if value is None
            else metric.strained(value, headroom.factor, headroom.decibels)
        )
    return found


def fits(
    comparison: Comparison, tolerance: Tolerance, headroom: Headroom = NONE
) -> bool:
    """Whether a comparison is within a tolerance and leaves the headroom."""
    return all(
        METRIC[name].is_met(value, getattr(tolerance, name))
        for name, value in needed(comparison, tolerance, headroom).items()
    )


def _loudness(comparison: Comparison) -> float:
    floors = comparison.floor_multiple
    return -math.inf if floors is None else floors


def _alone(comparison: Comparison) -> bool:
    return comparison.actual_constant and not comparison.expected_constant
