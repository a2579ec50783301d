"""The extent of many comparisons: one that is as bad as the worst, bound by bound.

A tolerance's bounds are each monotone in one number, so the extent is within a
tolerance exactly where every comparison in it is; shares are the exception, and judged
on the strict side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.core.comparison import Comparison
from harness.core.errors import SpecError
from harness.judge.tolerance import Tolerance
from harness.measure.metrics import METRICS, TUNED, Metric

Numbers = float | tuple[float, ...] | None
"""What a field of a comparison holds of a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What a bound must leave free above the worst that was measured.

    Attributes:
        factor: For noise floors and atol: how many times the worst must fit.
        decibels: For signal to error ratios.

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
        """Half of it, on the scale that errors multiply on."""
        return Headroom(factor=math.sqrt(self.factor), decibels=self.decibels / 2)

    def __str__(self) -> str:
        """As provenance says it."""
        return f"headroom {self.factor:g} x or {self.decibels:g} dB"


def worse(one: Comparison, two: Comparison) -> Comparison:
    """Return a comparison that fails each bound which either of two fails.

    What says where (indices, worst values) is that of the one with more floors.
    """
    base = max(one, two, key=_loudness)
    worst: dict[str, Any] = {
        metric.field: _worse_of(metric, one, two)
        for metric in METRICS
        if not metric.of_pictures
    }
    merged = replace(
        base,
        count=one.count + two.count,
        finite_count=one.finite_count + two.finite_count,
        nonfinite_expected=one.nonfinite_expected + two.nonfinite_expected,
        nonfinite_actual=one.nonfinite_actual + two.nonfinite_actual,
        nonfinite_mismatched=one.nonfinite_mismatched + two.nonfinite_mismatched,
        # Both sides constant is the input's doing; one of them alone is an error's.
        expected_constant=False,
        actual_constant=_alone(one) or _alone(two),
        **worst,
    )
    if one.picture is None or two.picture is None:
        # A bound of pictures holds of neither what has no picture nor of the two.
        return replace(merged, picture=None)
    return _with_picture(
        merged,
        lambda metric, _: metric.worst(
            *(metric.of(side) or 0.0 for side in (one, two))
        ),
    )


def _worse_of(metric: Metric, one: Comparison, two: Comparison) -> Numbers:
    numbers: tuple[Numbers, ...] = (
        getattr(one, metric.field),
        getattr(two, metric.field),
    )
    left, right = numbers
    if isinstance(left, tuple) and isinstance(right, tuple):
        return tuple(map(metric.worst, left, right))
    found = metric.without_error
    for side, number in zip((one, two), numbers, strict=True):
        if isinstance(number, float | int):
            found = metric.worst(found, number)
        elif side.max_abs != 0.0:
            # An unmeasured floor beside an error is one that cannot be checked.
            return None
    return found


def strained(comparison: Comparison, headroom: Headroom) -> Comparison:
    """Return a comparison whose every error is larger by the headroom."""

    def grown(metric: Metric, number: float) -> float:
        return metric.strained(number, headroom.factor, headroom.decibels)

    changes: dict[str, Any] = {}
    for metric in METRICS:
        if metric.of_pictures:
            continue
        number: Numbers = getattr(comparison, metric.field)
        if isinstance(number, tuple):
            changes[metric.field] = tuple(grown(metric, one) for one in number)
        elif number is not None:
            changes[metric.field] = grown(metric, number)
    return _with_picture(replace(comparison, **changes), grown)


def _with_picture(
    comparison: Comparison, change: Callable[[Metric, float], float]
) -> Comparison:
    """Return a comparison with other numbers of its picture, if it has one."""
    picture = comparison.picture
    if picture is None:
        return comparison
    for metric in METRICS:
        if metric.of_pictures:
            name = metric.field.rpartition(".")[2]
            changed: dict[str, Any] = {name: change(metric, getattr(picture, name))}
            picture = replace(picture, **changed)
    return replace(comparison, picture=picture)


def is_sound(comparison: Comparison) -> bool:
    """Whether a bound can be drawn from it: shapes fit and all is finite."""
    return (
        comparison.expected_shape == comparison.actual_shape
        and comparison.count > 0
        and not comparison.nonfinite_actual
        and not comparison.nonfinite_expected
    )


def needed(comparison: Comparison, tolerance: Tolerance) -> dict[str, float]:
    """Return what each bound that a tolerance states would have to be, exactly."""
    found = {}
    for metric in TUNED:
        if tolerance.limit(metric) is not None:
            value = metric.error(comparison, tolerance.rtol or 0.0)
            found[metric.name] = math.inf if value is None else value
    return found


def _loudness(comparison: Comparison) -> float:
    floors = comparison.floor_multiple
    return -math.inf if floors is None else floors


def _alone(comparison: Comparison) -> bool:
    return comparison.actual_constant and not comparison.expected_constant
