"""Every metric of a comparison, as one row of one table.

A row has everything that the harness knows about a metric: its field in `Comparison`,
which direction is tighter, how it is printed, and how it grows with the error. The
judge, the tuner and the reports iterate over the table. So a new metric needs a field
in `Comparison`, a row here and, if it can be a bound, a field in `Tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from harness.core.comparison import RTOL_GRID, Comparison

_PICTURE = "picture."
_DECIBELS_A_FACTOR = 20.0
_LARGEST_POWER = 300.0
"""Largest decimal exponent of a quotient. It prevents an overflow for a very large
error."""

_OTHER_SIZE = 10.0
"""Ratio of two norms from which the arrays count as very different in size."""


class Scale(StrEnum):
    """How a metric depends on the size of an error."""

    ERROR = "error"
    """The metric grows with the error; 0 means no error."""
    DECIBELS = "decibels"
    """The metric falls by 20 if the error becomes ten times as large; infinity means no
    error."""
    SIMILARITY = "similarity"
    """1 minus the metric grows with the error; 1 means no error."""


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the finite pairs of two arrays, in float64.

    The error of a pair is actual - expected.

    Attributes:
        count: Number of finite pairs.
        error_squared: Sum of the squared errors.
        expected_squared: Sum of the squared expected values.
        actual_squared: Sum of the squared actual values.
        product: Sum of expected times actual.
        along: Sum of error times expected. It measures the part of the error in the
            direction of the expected values.

    """

    count: int
    error_squared: float
    expected_squared: float
    actual_squared: float
    product: float
    along: float


def ratio(above: float, below: float, *, both_zero: float) -> float:
    """Divide two non-negative numbers, zero included."""
    if below == 0.0:
        return both_zero if above == 0.0 else math.inf
    return above / below


def cosine(sums: Sums) -> float:
    """Return the cosine of the angle; 1 if both are zero, 0 if exactly one is."""
    signal, candidate = sums.expected_squared, sums.actual_squared
    if signal == 0.0 or candidate == 0.0:
        return 1.0 if signal == candidate else 0.0
    found = sums.product / (math.sqrt(signal) * math.sqrt(candidate))
    # Rounding may give a number just beyond 1. A NaN, from sums that overflowed, is
    # kept.
    return math.copysign(1.0, found) if abs(found) > 1.0 else found


def _rms(sums: Sums) -> float:
    return math.sqrt(sums.error_squared / sums.count)


def _sqnr_db(sums: Sums) -> float:
    power = ratio(sums.expected_squared, sums.error_squared, both_zero=math.inf)
    return 10.0 * math.log10(power) if power else -math.inf


def _cosine_distance(sums: Sums) -> float:
    """Return 1 - cosine without the digits that the subtraction would lose.

    A float32 error of 1e-7 turns a vector so little that 1 - cosine is 5e-15, and
    float64 would keep only one digit of it. Let d be the power of the error, and p its
    part along the expected values, both relative to the signal. Then the distance is
    ``(d - p^2) / (c * (c + 1 + p))``, where c is the ratio of the two norms. 1 + p is
    the product divided by the signal.
    """
    signal, candidate = sums.expected_squared, sums.actual_squared
    norms = math.sqrt(ratio(candidate, signal, both_zero=math.nan))
    # If the norms differ much, or the angle is wide, the formula below would cancel.
    # There the plain subtraction loses little.
    if not 1.0 / _OTHER_SIZE < norms < _OTHER_SIZE or not sums.product > 0.0:
        return 1.0 - cosine(sums)
    power, along = sums.error_squared / signal, sums.along / signal
    turned = power - along * along
    # By the Cauchy-Schwarz inequality it is not negative, but rounding can make it so.
    return 0.0 if turned < 0.0 else turned / (norms * (norms + sums.product / signal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of a comparison.

    Attributes:
        name: Name in tolerances.toml and in tables.
        field: Field of `Comparison` that holds it, or ``picture.`` and a field of
            `Picture`. If the field has one number for each rtol of the grid, it is read
            at one rtol.
        scale: How it depends on the size of an error. This decides which direction is
            tighter.
        phrase: Template of a phrase with its number and unit: ``SQNR {} dB``.
        spec: Format of its number in a verdict's reason.
        brief: Template of its number with its unit, where only magnitudes matter.
        title: Heading of its column in a table.
        hint: Phrase that explains the metric.
        is_bound: Whether a tolerance can bound it.
        least: Smallest number that may be its bound.
        most: Largest number that may be its bound.
        power: Exponent of the error: an error twice as large makes the number 2 to this
            power times as large.
        measure: Function that computes it from the sums; None if it needs more than
            them.

    """

    name: str
    field: str
    phrase: str
    brief: str
    title: str
    hint: str
    scale: Scale = Scale.ERROR
    spec: str = ".3e"
    is_bound: bool = False
    least: float = 0.0
    most: float = math.inf
    power: int = 1
    measure: Callable[[Sums], float] | None = None

    @property
    def of_pictures(self) -> bool:
        """Whether only pictures have the metric."""
        return self.field.startswith(_PICTURE)

    @property
    def more_is_tighter(self) -> bool:
        """Whether a larger number is better."""
        return self.scale is not Scale.ERROR

    @property
    def without_error(self) -> float:
        """The number that two equal values have."""
        return {Scale.ERROR: 0.0, Scale.DECIBELS: math.inf, Scale.SIMILARITY: 1.0}[
            self.scale
        ]

    def of(self, comparison: Comparison, rtol: float = 0.0) -> float | None:
        """Return the number of a comparison.

        `rtol` is one of the grid, for a metric with one number for each rtol.

        Returns:
            The number. It is NaN if it could not be measured, and None if the means to
            measure it, such as a noise floor, were missing.

        """
        if self.of_pictures:
            picture = comparison.picture
            name = self.field.removeprefix(_PICTURE)
            return math.nan if picture is None else float(getattr(picture, name))
        value: float | tuple[float, ...] | None = getattr(comparison, self.field)
        if isinstance(value, tuple):
            return value[RTOL_GRID.index(rtol)]
        return value

    def said(self, comparison: Comparison) -> str:
        """Return the number of a comparison with its unit, in a few digits."""
        return self.brief.format(self.of(comparison))

    def error(self, comparison: Comparison, rtol: float = 0.0) -> float | None:
        """Return the number of a comparison, or `without_error` for equal values.

        Equal integers, or a layer of zeros, have neither a noise floor nor a signal to
        divide by. They meet every bound. Numbers of pictures have no such case.
        """
        if comparison.max_abs == 0.0 and not self.of_pictures:
            return self.without_error
        return self.of(comparison, rtol)

    def is_met(self, value: float, limit: float) -> bool:
        """Whether a number is within a limit; NaN is not."""
        return value >= limit if self.more_is_tighter else value <= limit

    def is_looser(self, one: float, two: float) -> bool:
        """Whether one limit allows more than another."""
        return one < two if self.more_is_tighter else one > two

    def worst(self, one: float, two: float) -> float:
        """Return the worse of two numbers; NaN, a number not measured, is the worst."""
        if math.isnan(one) or math.isnan(two):
            return math.nan
        return min(one, two) if self.more_is_tighter else max(one, two)

    def times(self, one: float, two: float) -> float:
        """Return the ratio of two errors, given the numbers that measure them.

        Each number may also be a limit. If `two`, which divides, means no error, any
        error is infinitely many times as large.
        """
        if self.scale is Scale.DECIBELS:
            if math.isinf(two):
                return 1.0 if one == two else math.inf
            steps = (two - one) / _DECIBELS_A_FACTOR
            return math.pow(10.0, min(steps, _LARGEST_POWER))
        if self.scale is Scale.SIMILARITY:
            one, two = 1.0 - one, 1.0 - two
        if two <= 0.0:
            return math.inf if one != 0.0 else 0.0
        return math.pow(one / two, 1.0 / self.power) if self.power > 1 else one / two

    def strained(self, value: float, factor: float, decibels: float) -> float:
        """Return the number after the error has grown by some headroom.

        The error of a metric in decibels grows by `decibels`, any other by `factor`.
        """
        if self.scale is Scale.DECIBELS:
            return value - decibels
        if self.scale is Scale.SIMILARITY:
            return 1.0 - (1.0 - value) * factor
        grown = value * factor**self.power
        # A metric with a largest number cannot have a bound beyond it.
        return min(grown, self.most)

    def rounded(self, value: float) -> float:
        """Return a bound as a person would write it: two digits, or half decibels.

        It is rounded towards the looser side, so that a value within it stays within
        it.
        """
        if not math.isfinite(value) or value == 0.0:
            return value
        if self.scale is Scale.DECIBELS:
            return math.floor(2.0 * value) / 2.0
        if self.scale is Scale.SIMILARITY:
            return 1.0 - _two_digits(1.0 - value)
        return min(_two_digits(value), self.most)


def _two_digits(value: float) -> float:
    if value == 0.0:
        return value
    digits = 1 - math.floor(math.log10(abs(value)))
    return math.ceil(round(value * 10.0**digits, 9)) / 10.0**digits


METRICS: Final = (
    Metric(
        name="max_abs",
        field="max_abs",
        phrase="largest error {}",
        brief="{:.2e}",
        title="max abs",
        hint="largest absolute error",
    ),
    Metric(
        name="rms",
        field="rms",
        phrase="rms error {}",
        brief="rms {:.2e}",
        title="rms",
        hint="root of the mean squared error",
        measure=_rms,
    ),
    Metric(
        name="p99",
        field="p99",
        phrase="99 % of errors within {}",
        brief="p99 {:.2e}",
        title="p99",
        hint="99 % of the absolute errors are no larger",
    ),
    Metric(
        name="p999",
        field="p999",
        phrase="99.9 % of errors within {}",
        brief="p99.9 {:.2e}",
        title="p99.9",
        hint="99.9 % of the absolute errors are no larger",
    ),
    Metric(
        name="atol",
        field="required_atol",
        phrase="required atol {}",
        brief="atol {:.2e}",
        title="atol",
        hint="smallest atol that passes at the tolerance's rtol",
        is_bound=True,
    ),
    Metric(
        name="floors",
        field="floor_multiple",
        phrase="{} floors",
        spec=".4g",
        brief="{:.3g} floors",
        title="floors",
        hint="error in noise floors: what float32 alone costs PyTorch is 1",
        is_bound=True,
    ),
    Metric(
        name="sqnr_db",
        field="sqnr_db",
        scale=Scale.DECIBELS,
        phrase="SQNR {} dB",
        spec=".1f",
        brief="{:.1f} dB",
        title="SQNR dB",
        hint="signal to error, decibels",
        is_bound=True,
        measure=_sqnr_db,
    ),
    Metric(
        name="cosine_distance",
        field="cosine_distance",
        phrase="cosine distance {}",
        brief="cosine distance {:.1e}",
        title="cos dist",
        hint="1 - cosine of actual and expected: 0 is the same direction",
        is_bound=True,
        most=2.0,
        # An error at a right angle to the values turns them by an angle, and 1 - cosine
        # is half the square of that angle.
        power=2,
        measure=_cosine_distance,
    ),
    Metric(
        name="psnr_db",
        field="picture.psnr_db",
        scale=Scale.DECIBELS,
        phrase="PSNR {} dB",
        spec=".1f",
        brief="PSNR {:.1f} dB",
        title="PSNR dB",
        hint="a picture's peak to error, decibels",
        is_bound=True,
    ),
    Metric(
        name="ssim",
        field="picture.ssim",
        scale=Scale.SIMILARITY,
        phrase="SSIM {}",
        spec=".4f",
        brief="SSIM {:.4f}",
        title="SSIM",
        hint="structural similarity of two pictures",
        is_bound=True,
        least=-1.0,
        most=1.0,
    ),
)
"""Every metric that depends on the size of an error, in the order in which they are
printed."""

METRIC: Final = {metric.name: metric for metric in METRICS}
"""Every metric, by its name."""

BOUNDED: Final = tuple(metric for metric in METRICS if metric.is_bound)
"""The metrics that a tolerance can bound."""

TUNED: Final = tuple(metric for metric in BOUNDED if not metric.of_pictures)
"""The metrics whose bounds `parity tune` can derive from a component's values."""
