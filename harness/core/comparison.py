"""What a comparison measured: nouns, and their JSON. `compare` makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from harness.core.errors import SpecError
from harness.core.ladder import RTOL_LADDER

_UNMEASURED = (math.nan,) * len(RTOL_LADDER)
_PICTURE_WORDS = ("perceptual_by", "expected_read", "actual_read")
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a comparison of two pictures has beside its numbers.

    Levels go from 0 to 255 and are not rounded.

    Attributes:
        expected_peak: Largest finite level of the reference's; NaN if none is.
        actual_peak: Of the candidate's.
        expected_spread: Largest difference of two finite levels of one channel in
            the reference's; below 1 it is of one colour.
        actual_spread: In the candidate's.
        mean_abs: Mean absolute difference, in levels; NaN where one is not finite.
        psnr_db: Peak signal to noise, the peak being 255; infinite where they are
            equal, NaN where a level is not finite.
        ssim: Structural similarity (Wang et al. 2004), 1 where they are equal; NaN
            where it could not be measured.
        perceptual: Mean perceptual difference from 0 to 1, None without a package.
        perceptual_by: The package that measured it, or why none did.
        expected_read: What a suite's reader sees in the reference's; empty without.
        actual_read: What it sees in the candidate's.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How far a candidate's values lie from the reference's.

    The error is actual - expected, in float64. Pairs that are not finite on both
    sides are counted and left out of every other number. A number that could not be
    measured is NaN, an index None: nothing is measured where the shapes differ, where
    there is no element, or where no pair is finite. float64 inputs beyond 1e154, whose
    squares overflow, give infinite or NaN sums.

    Attributes:
        expected_shape: Of the reference's array.
        actual_shape: Of the candidate's; if it differs, nothing below the dtypes is
            measured and `count` is 0.
        expected_dtype: As numpy names it, ``float32``.
        actual_dtype: Likewise.
        count: Pairs held against each other, non-finite ones included.
        finite_count: Pairs that are finite on both sides.
        nonfinite_expected: NaN and infinities among the expected values.
        nonfinite_actual: NaN and infinities among the actual values.
        nonfinite_mismatched: Positions where the two differ in class: finite, NaN,
            +inf, -inf.
        expected_constant: More than one element, and one value everywhere.
        actual_constant: Likewise.
        max_abs: Largest absolute error.
        rms: Root of the mean squared error.
        p99: At least 99 % of the absolute errors are no larger. It is the upper edge
            of a histogram bin, at most 1/16 above the quantile and never above
            `max_abs`. Beyond `EXACT_QUANTILES` elements the histogram holds every
            n-th error for a prime n, at least 2^18 of them: then the share is an
            estimate.
        p999: The same for 99.9 %.
        bias: Mean error, with its sign.
        cosine: Of the angle between the two as vectors; 1 if both are zero, 0 if
            exactly one is.
        cosine_distance: 1 - cosine, without the digits that this subtraction loses
            where the two are nearly parallel; 0 for the same direction, 2 for the
            opposite one.
        norm_ratio: Euclidean norm of actual over that of expected; 1 if both are zero.
        sqnr_db: Signal (expected) to error power, in decibels; inf without error.
        expected_rms: Root mean square of the expected values.
        worst_index: Where the absolute error is largest; the first of equals.
        worst_expected: The expected value there; an int for integers and booleans.
        worst_actual: The actual value there.
        worst_item: Index along axis 0 with the largest rms; None for a scalar.
        worst_item_rms: The error's rms in that item.
        worst_channel: Index along axis 1 with the largest rms over all items; None
            with fewer than three axes.
        worst_channel_rms: The error's rms in that channel, None without one.
        required_atol: For each rtol of `RTOL_LADDER` the smallest atol with
            ``|error| <= atol + rtol * |expected|`` everywhere.
        floor_rms: Noise floor given by the caller: the rms of the reference's own
            float32 error; None if it is not known.
        floor_multiple: `rms` in noise floors, the floor being at least the unit
            roundoff times `expected_rms`; 0 without error, None if `floor_rms` is.
        picture: What else was measured of a picture; None for what is none.

    """

    expected_shape: tuple[int, ...]
    actual_shape: tuple[int, ...]
    expected_dtype: str
    actual_dtype: str
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
    worst_expected: float | None = None
    worst_actual: float | None = None
    worst_item: int | None = None
    worst_item_rms: float = math.nan
    worst_channel: int | None = None
    worst_channel_rms: float | None = None
    required_atol: tuple[float, ...] = _UNMEASURED
    floor_rms: float | None = None
    floor_multiple: float | None = None
    picture: Picture | None = None

    def __post_init__(self) -> None:
        if len(self.required_atol) != len(RTOL_LADDER):
            msg = (
                f"required_atol needs one number for each rtol of {RTOL_LADDER}, got "
                f"{self.required_atol}."
            )
            raise SpecError(msg)

    def to_json(self) -> dict[str, Any]:
        """Return a dict that strict JSON can hold, with nothing lost.

        Tuples become lists, None stays null, and the floats that JSON has no word for
        become the strings ``"nan"``, ``"inf"`` and ``"-inf"``.
        """
        return {
            field.name: _jsonable(getattr(self, field.name)) for field in fields(self)
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Comparison:
        """Read what `to_json` wrote.

        Raises:
            SpecError: A field is missing or unknown.

        """
        _check_fields("comparison", {field.name for field in fields(cls)}, data)
        values = {name: _from_jsonable(value) for name, value in data.items()}
        if values["picture"] is not None:
            names = {field.name for field in fields(Picture)}
            _check_fields("picture", names, data["picture"])
            words = {name: data["picture"][name] for name in _PICTURE_WORDS}
            values["picture"] = Picture(**{**values["picture"], **words})
        return cls(**values)


def _check_fields(noun: str, names: set[str], data: Mapping[str, Any]) -> None:
    if names != data.keys():
        missing, unknown = sorted(names - data.keys()), sorted(data.keys() - names)
        msg = (
            f"A {noun} has other fields: missing {missing}, unknown {unknown}. "
            "Record the run again."
        )
        raise SpecError(msg)


def _jsonable(value: object) -> object:
    if isinstance(value, Picture):
        return {name: _jsonable(entry) for name, entry in asdict(value).items()}
    if isinstance(value, tuple):
        return [_jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_jsonable(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    if isinstance(value, list):
        return tuple(_from_jsonable(entry) for entry in value)
    if isinstance(value, dict):
        return {name: _from_jsonable(entry) for name, entry in value.items()}
    return _NONFINITE.get(value, value) if isinstance(value, str) else value
