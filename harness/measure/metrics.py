"""Every metric of a comparison, as one row of one table.

A row says all that the harness must know of a metric: where `Comparison` holds it,
which direction is tighter, how it is said, and how it grows with the error. The judge,
the tuner and the reports go over the table, so that a new metric needs a field in
`Comparison`, a row here and, if it can be a bound, a field in `Tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.core.comparison import Comparison
from harness.core.ladder import RTOL_LADDER

_PICTURE = "picture."
_DECIBELS_A_FACTOR = 20.0
_LARGEST_POWER = 300.0
"""Decimal exponents beyond this are cut, so that a hopeless value does not overflow."""

_OTHER_SIZE = 10.0
"""Norms that are so many times apart are of values of another size."""


class Scale(StrEnum):
    """How a metric follows the size of an error."""

    ERROR = "error"
    """It grows with the error; 0 is no error."""
    DECIBELS = "decibels"
    """It falls by 20 where the error is ten times as large; no error is infinite."""
    SIMILARITY = "similarity"
    """What is missing to 1 grows with the error; 1 is no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over the finite pairs of two arrays, in float64.

    The error of a pair is actual - expected.

    Attributes:
        count: Number of finite pairs.
        error_squared: Sum of the squared errors.
        expected_squared: Sum of the squared expected values.
        actual_squared: Sum of the squared actual values.
        product: Sum of expected times actual.
        along: Sum of the error times expected: the part of the error that points
            in the direction of the expected values.

    """

    count: int
    error_squared: float
    expected_squared: float
    actual_squared: float
    product: float
    along: float


def ratio(above: float, below: float, *, both_zero: float) -> float:
    """Divide two numbers that are not negative, zero included."""
    if below == 0.0:
        return both_zero if above == 0.0 else math.inf
    return above / below


def cosine(sums: Sums) -> float:
    """Return the cosine of the angle; 1 if both are zero, 0 if exactly one is."""
    signal, candidate = sums.expected_squared, sums.actual_squared
    if signal == 0.0 or candidate == 0.0:
        return 1.0 if signal == candidate else 0.0
    found = sums.product / (math.sqrt(signal) * math.sqrt(candidate))
    # Rounding may step over the edge; a NaN, from sums that overflowed, stays one.
    return math.copysign(1.0, found) if abs(found) > 1.0 else found


def _rms(sums: Sums) -> float:
    return math.sqrt(sums.error_squared / sums.count)


def _sqnr_db(sums: Sums) -> float:
    power = ratio(sums.expected_squared, sums.error_squared, both_zero=math.inf)
    return 10.0 * math.log10(power) if power else -math.inf


def _cosine_distance(sums: Sums) -> float:
    """Return 1 - cosine without the digits that the subtraction would lose.

    A float32 error of 1e-7 turns a vector by so little that 1 - cosine is 5e-15, of
    which float64 would keep one digit. With the error's power d and its part p along
    the expected values, both relative to the signal, the distance is
    ``(d - p^2) / (c * (c + 1 + p))``, where c is the ratio of the two norms; 1 + p
    is the product over the signal.
    """
    signal, candidate = sums.expected_squared, sums.actual_squared
    norms = math.sqrt(ratio(candidate, signal, both_zero=math.nan))
    # Of values of another size, and of wide angles, the sums below would cancel, and
    # there the subtraction loses little.
    if not 1.0 / _OTHER_SIZE < norms < _OTHER_SIZE or not sums.product > 0.0:
        return 1.0 - cosine(sums)
    power, along = sums.error_squared / signal, sums.along / signal
    turned = power - along * along
    # By Cauchy and Schwarz it is not negative, but its rounding may be.
    return 0.0 if turned < 0.0 else turned / (norms * (norms + sums.product / signal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of a comparison.

    Attributes:
        name: What tolerances.toml and the tables call it.
        field: The field of `Comparison` that holds it, ``picture.`` before it for a
            field of `Picture`. A field with a number for each rtol of the ladder is
            read at one rtol.
        scale: How it follows the size of an error, and so which direction is tighter.
        phrase: How a number of it is said, with its unit: ``SQNR {} dB``.
        spec: The format of the number in a verdict's reason.
        brief: The number with its unit where only magnitudes matter.
        title: The head of a column of it.
        hint: What it is, in a phrase.
        is_bound: Whether a tolerance can bound it.
        least: The least that a bound of it may be.
        most: The most that a bound of it may be.
        power: An error twice as large makes it 2 to this power times as large.
        measure: How it follows from the sums; None where it needs more than them.

    """

    name: str
    field: str
    scale: Scale
    phrase: str
    spec: str
    brief: str
    title: str
    hint: str
    is_bound: bool = False
    least: float = 0.0
    most: float = math.inf
    power: int = 1
    measure: Callable[[Sums], float] | None = None

    @property
    def of_pictures(self) -> bool:
        """Whether only pictures have it."""
        return self.field.startswith(_PICTURE)

    @property
    def more_is_tighter(self) -> bool:
        """Whether a larger number is the better one."""
        return self.scale is not Scale.ERROR

    @property
    def without_error(self) -> float:
        """The number that two equal values have."""
        return {Scale.ERROR: 0.0, Scale.DECIBELS: math.inf, Scale.SIMILARITY: 1.0}[
            self.scale
        ]

    def of(self, comparison: Comparison, rtol: float = 0.0) -> float | None:
        """Return a comparison's number.

        Args:
            comparison: The measurement.
            rtol: The rtol of the ladder at which a metric that has several is read.

        Returns:
            NaN where it could not be measured, None where nothing was there to
            measure it with.

        """
        if self.of_pictures:
            picture = comparison.picture
            name = self.field.removeprefix(_PICTURE)
            return math.nan if picture is None else float(getattr(picture, name))
        value: float | tuple[float, ...] | None = getattr(comparison, self.field)
        if isinstance(value, tuple):
            return value[RTOL_LADDER.index(rtol)]
        return value

    def said(self, comparison: Comparison) -> str:
        """Return a comparison's number with its unit, in a few digits."""
        return self.brief.format(self.of(comparison))

    def error(self, comparison: Comparison, rtol: float = 0.0) -> float | None:
        """Return a comparison's number, no error being none in any unit.

        Equal integers, or a layer of zeros, have neither a noise floor nor a signal
        to divide by, and meet every bound. A picture's numbers have no such case.
        """
        if comparison.max_abs == 0.0 and not self.of_pictures:
            return self.without_error
        return self.of(comparison, rtol)

    def is_met(self, value: float, limit: float) -> bool:
        """Whether a number is within a limit; NaN is not."""
        return value >= limit if self.more_is_tighter else value <= limit

    def is_looser(self, one: float, two: float) -> bool:
        """Whether one limit lets more through than another."""
        return one < two if self.more_is_tighter else one > two

    def worst(self, one: float, two: float) -> float:
        """Return the worse of two numbers; one that was not measured is the worst."""
        if math.isnan(one) or math.isnan(two):
            return math.nan
        return min(one, two) if self.more_is_tighter else max(one, two)

    def times(self, one: float, two: float) -> float:
        """Return how many times larger an error one number stands for than another.

        Args:
            one: The number, or a limit.
            two: The number or limit that it is divided by. Of none at all, any
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
        """Return the number of an error that is larger by some headroom.

        Args:
            value: The number.
            factor: How many times larger the error is, of what grows with it.
            decibels: How much larger it is, of what counts in decibels.

        """
        if self.scale is Scale.DECIBELS:
            return value - decibels
        if self.scale is Scale.SIMILARITY:
            return 1.0 - (1.0 - value) * factor
        grown = value * factor**self.power
        # A metric that ends somewhere cannot be bounded beyond its end.
        return min(grown, self.most)

    def rounded(self, value: float) -> float:
        """Return a bound that a person would write: two digits, or half decibels.

        It is rounded outwards, so that what was within stays within.
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
        scale=Scale.ERROR,
        phrase="largest error {}",
        spec=".3e",
        brief="{:.2e}",
        title="max abs",
        hint="largest absolute error",
    ),
    Metric(
        name="rms",
        field="rms",
        scale=Scale.ERROR,
        phrase="rms error {}",
        spec=".3e",
        brief="rms {:.2e}",
        title="rms",
        hint="root of the mean squared error",
        measure=_rms,
    ),
    Metric(
        name="p99",
        field="p99",
        scale=Scale.ERROR,
        phrase="99 % of errors within {}",
        spec=".3e",
        brief="p99 {:.2e}",
        title="p99",
        hint="99 % of the absolute errors are no larger",
    ),
    Metric(
        name="p999",
        field="p999",
        scale=Scale.ERROR,
        phrase="99.9 % of errors within {}",
        spec=".3e",
        brief="p99.9 {:.2e}",
        title="p99.9",
        hint="99.9 % of the absolute errors are no larger",
    ),
    Metric(
        name="atol",
        field="required_atol",
        scale=Scale.ERROR,
        phrase="required atol {}",
        spec=".3e",
        brief="atol {:.2e}",
        title="atol",
        hint="smallest atol that passes at the tolerance's rtol",
        is_bound=True,
    ),
    Metric(
        name="floors",
        field="floor_multiple",
        scale=Scale.ERROR,
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
        scale=Scale.ERROR,
        phrase="cosine distance {}",
        spec=".3e",
        brief="cosine distance {:.1e}",
        title="cos dist",
        hint="1 - cosine of actual and expected: 0 is the same direction",
        is_bound=True,
        most=2.0,
        # An error across the values turns them by an angle, and 1 - cosine is half
        # the square of that.
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
"""Every metric that follows the size of an error, in the order that they are said."""

METRIC: Final = {metric.name: metric for metric in METRICS}
"""By name."""

BOUNDED: Final = tuple(metric for metric in METRICS if metric.is_bound)
"""The metrics that a tolerance can bound."""

TUNED: Final = tuple(metric for metric in BOUNDED if not metric.of_pictures)
"""The metrics whose bounds can be drawn from the values of a component."""
