"""The result of a comparison, and its JSON form.

`harness.measure.compare` makes the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from harness.core.errors import SpecError

RTOL_GRID: tuple[float, ...] = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""The relative tolerances at which every comparison is measured: ascending, unitless.

A recorded comparison can be judged again under any rtol of this grid, without the
arrays. At rtol 0 the required atol is the largest error."""

_UNMEASURED = (math.nan,) * len(RTOL_GRID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Measurements that only a comparison of two pictures has.

    Levels go from 0 to 255 and are not rounded.

    Attributes:
        expected_peak: Largest finite level of the reference's picture; NaN if no level
            is finite.
        actual_peak: Largest finite level of the candidate's picture.
        expected_spread: Largest difference of two finite levels of one channel in the
            reference's picture. Below 1 the picture has a single colour.
        actual_spread: The same in the candidate's picture.
        mean_abs: Mean absolute difference, in levels; NaN if a level is not finite.
        psnr_db: Peak signal-to-noise ratio in decibels, with a peak of 255; infinite if
            the pictures are equal, NaN if a level is not finite.
        ssim: Structural similarity (Wang et al. 2004); 1 if the pictures are equal, NaN
            if it could not be measured.
        perceptual: Mean perceptual difference from 0 to 1; None if no package measured
            it.
        perceptual_by: Package that measured `perceptual`, or the reason why none did.
        expected_read: What a suite's reader reads in the reference's picture; empty
            without a reader.
        actual_read: What it reads in the candidate's picture.

    """

    expected_peak: float
    actual_peak: float
    expected_spread: float
    actual_spread: float
    mean_abs: float
    psnr_db: float
    ssim: float
    perceptual: float | None
    perceptual_by: str
    expected_read: str = ""
    actual_read: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How far a candidate's values are from the reference's.

    The error is actual - expected, in float64. Pairs that are not finite on both sides
    are counted, and left out of every other number. A number that could not be measured
    is NaN, and an index is None. Nothing is measured if the shapes differ, if there is
    no element, or if no pair is finite. The squares of float64 inputs beyond 1e154
    overflow, so their sums are infinite or NaN. A baseline keeps only `BRIEF_FIELDS`;
    the other fields then have their defaults.

    Attributes:
        expected_shape: Shape of the reference's array.
        actual_shape: Shape of the candidate's array. If it differs, only the dtypes are
            recorded and `count` is 0.
        expected_dtype: Dtype of the reference's array, as NumPy names it: ``float32``.
        actual_dtype: Dtype of the candidate's array.
        count: Number of compared pairs, non-finite ones included.
        finite_count: Number of pairs that are finite on both sides.
        nonfinite_expected: Number of NaN and infinities among the expected values.
        nonfinite_actual: Number of NaN and infinities among the actual values.
        nonfinite_mismatched: Number of positions where the two values differ in class:
            finite, NaN, +inf, -inf.
        expected_constant: Whether the reference's array has more than one element and
            the same value everywhere.
        actual_constant: Whether this is so for the candidate's array.
        max_abs: Largest absolute error.
        rms: Root mean square of the error.
        p99: Bound that at least 99 % of the absolute errors do not exceed. It is the
            upper edge of a histogram bin: at most 1/16 above the quantile, and never
            above `max_abs`. Beyond `EXACT_QUANTILES` elements the histogram holds every
            n-th error for a prime n, and at least 2^18 errors. The share is then an
            estimate.
        p999: The same bound for 99.9 %.
        bias: Mean error, with its sign.
        cosine: Cosine of the angle between the two arrays as vectors; 1 if both are
            zero, 0 if exactly one is.
        cosine_distance: 1 - cosine, computed without the digits that this subtraction
            loses if the vectors are nearly parallel; 0 for the same direction, 2 for
            the opposite one.
        norm_ratio: Euclidean norm of actual divided by that of expected; 1 if both are
            zero.
        sqnr_db: Ratio of signal power (expected) to error power, in decibels; infinite
            without an error.
        expected_rms: Root mean square of the expected values.
        worst_index: Index of the largest absolute error, the first one if several are
            equal.
        worst_expected: Expected value at `worst_index`; an int for integers and
            booleans.
        worst_actual: Actual value at `worst_index`.
        worst_item: Index along axis 0 of the item whose error has the largest rms; None
            for a scalar.
        worst_item_rms: Rms of the error in that item.
        worst_channel: Index along axis 1 of the channel whose error has the largest rms
            over all items; None with fewer than three axes.
        worst_channel_rms: Rms of the error in that channel; None if there is none.
        required_atol: For each rtol of `RTOL_GRID`, the smallest atol with
            ``|error| <= atol + rtol * |expected|`` everywhere.
        floor_rms: Noise floor from the caller: the rms of the reference's own float32
            error; None if it is not known.
        floor_multiple: `rms` divided by the noise floor. The floor is at least the unit
            roundoff times `expected_rms`. The number is 0 without an error, and None if
            `floor_rms` is None.
        picture: Further measurements of a picture; None for any other value.

    """

    expected_shape: tuple[int, ...]
    actual_shape: tuple[int, ...] = ()
    expected_dtype: str = ""
    actual_dtype: str = ""
    count: int = 0
    finite_count: int = 0
    nonfinite_expected: int = 0
    nonfinite_actual: int = 0
    nonfinite_mismatched: int = 0
    expected_constant: bool = False
    actual_constant: bool = False
    max_abs: float = math.nan
    rms: float = math.nan
    p99: float = math.nan
    p999: float = math.nan
    bias: float = math.nan
    cosine: float = math.nan
    cosine_distance: float = math.nan
    norm_ratio: float = math.nan
    sqnr_db: float = math.nan
    expected_rms: float = math.nan
    worst_index: tuple[int, ...] | None = None
    worst_expected: int | float | None = None
    worst_actual: int | float | None = None
    worst_item: int | None = None
    worst_item_rms: float = math.nan
    worst_channel: int | None = None
    worst_channel_rms: float | None = None
    required_atol: tuple[float, ...] = _UNMEASURED
    floor_rms: float | None = None
    floor_multiple: float | None = None
    picture: Picture | None = None

    def __post_init__(self) -> None:
        if len(self.required_atol) != len(RTOL_GRID):
            msg = (
                f"required_atol needs one number for each rtol of {RTOL_GRID}, got "
                f"{self.required_atol}."
            )
            raise SpecError(msg)

    @property
    def floor(self) -> float | None:
        """The noise floor that `floor_multiple` is a multiple of, or None."""
        multiple = self.floor_multiple
        if multiple and math.isfinite(multiple):
            # The floor is at least the unit roundoff of the values, so it can be
            # larger than `floor_rms`.
            return self.rms / multiple
        return self.floor_rms


FIELDS = Comparison.__struct_fields__
BRIEF_FIELDS = (
    *("expected_shape", "nonfinite_mismatched", "expected_rms"),
    *("rms", "required_atol", "floor_rms"),
)
"""The fields that a baseline keeps. The rows of another run are compared by them."""


def to_columns(
    comparisons: Sequence[Comparison], names: Sequence[str] = FIELDS
) -> dict[str, list[Any]]:
    """Return fields of comparisons as columns of strict JSON, without any loss."""
    return {
        name: _column([getattr(comparison, name) for comparison in comparisons])
        for name in names
    }


def _column(values: list[Any]) -> list[Any]:
    try:
        if all(map(math.isfinite, values)):  # most columns: strict JSON as they are
            return values
    except TypeError:
        pass
    return [strict(value) for value in values]


def strict(value: object) -> Any:  # noqa: ANN401  # what JSON holds
    """Return a value as strict JSON: text stands for ``nan`` and ``inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Picture):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): strict(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [strict(entry) for entry in value]
    return value
