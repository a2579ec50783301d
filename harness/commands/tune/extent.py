"""The extent of many comparisons: one that is as bad as the worst, bound by bound.

A tolerance's bounds are each monotone in one number, so the extent is within a
tolerance exactly where every comparison in it is; shares are the exception, and judged
on the strict side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from harness.core.comparison import Comparison, Picture
from harness.core.errors import SpecError
from harness.core.ladder import RTOL_LADDER
from harness.judge.tolerance import Tolerance


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
    floors = (one.floor_multiple, two.floor_multiple)
    return replace(
        base,
        count=one.count + two.count,
        finite_count=one.finite_count + two.finite_count,
        nonfinite_expected=one.nonfinite_expected + two.nonfinite_expected,
        nonfinite_actual=one.nonfinite_actual + two.nonfinite_actual,
        nonfinite_mismatched=one.nonfinite_mismatched + two.nonfinite_mismatched,
        # Both sides constant is the input's doing; one of them alone is an error's.
        expected_constant=False,
        actual_constant=_alone(one) or _alone(two),
        max_abs=_most(one.max_abs, two.max_abs),
        rms=_most(one.rms, two.rms),
        p99=_most(one.p99, two.p99),
        p999=_most(one.p999, two.p999),
        sqnr_db=-_most(-one.sqnr_db, -two.sqnr_db),
        required_atol=tuple(
            _most(left, right)
            for left, right in zip(one.required_atol, two.required_atol, strict=True)
        ),
        # An unmeasured floor beside an error is one that cannot be checked.
        floor_multiple=None
        if any(
            floor is None and side.max_abs != 0.0
            for floor, side in zip(floors, (one, two), strict=True)
        )
        else max(floor or 0.0 for floor in floors),
    )


def strained(comparison: Comparison, headroom: Headroom) -> Comparison:
    """Return a comparison whose every error is larger by the headroom."""
    floors, picture = comparison.floor_multiple, comparison.picture
    by = headroom.factor
    return replace(
        comparison,
        max_abs=comparison.max_abs * by,
        rms=comparison.rms * by,
        p99=comparison.p99 * by,
        p999=comparison.p999 * by,
        sqnr_db=comparison.sqnr_db - headroom.decibels,
        required_atol=tuple(atol * by for atol in comparison.required_atol),
        floor_multiple=None if floors is None else floors * by,
        picture=None if picture is None else _strained_picture(picture, headroom),
    )


def _strained_picture(picture: Picture, headroom: Headroom) -> Picture:
    return replace(
        picture,
        psnr_db=picture.psnr_db - headroom.decibels,
        ssim=1.0 - (1.0 - picture.ssim) * headroom.factor,
    )


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
    equal = comparison.max_abs == 0.0
    if tolerance.atol is not None and tolerance.rtol is not None:
        rung = RTOL_LADDER.index(tolerance.rtol)
        found["atol"] = comparison.required_atol[rung]
    if tolerance.floors is not None:
        floors = 0.0 if equal else comparison.floor_multiple
        found["floors"] = math.inf if floors is None else floors
    if tolerance.sqnr_db is not None:
        found["sqnr_db"] = math.inf if equal else comparison.sqnr_db
    return found


def _loudness(comparison: Comparison) -> float:
    floors = comparison.floor_multiple
    return -math.inf if floors is None else floors


def _alone(comparison: Comparison) -> bool:
    return comparison.actual_constant and not comparison.expected_constant


def _most(one: float, two: float) -> float:
    """Return the larger; a number that could not be measured counts as none larger."""
    return math.nan if math.isnan(one) or math.isnan(two) else max(one, two)
