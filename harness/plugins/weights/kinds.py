"""Describe how a stored weight differs from PyTorch's, without a framework."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.measure.bfloat16 import BFLOAT16_BITS, to_bfloat16

ROUNDING = 1e-6
"""Largest difference that float32 arithmetic may cause, as a share of the weight's
largest number."""

_EXACT = 2e-6
"""Largest remainder of a scaled weight, as a share of its size."""

_EACH, _FEW_LEFT = 1e-3, 0.01
"""Largest remainder of a number, as a share of it, and the largest share of numbers
that may have a larger one."""

_MATRIX = 2
_FEWEST = 32
"""Smallest number of elements from which a number of levels means something."""

_EVEN = 0.02
"""Largest distance of a number from its grid, as a share of a step."""

_NEAR = 0.5
"""Largest difference, as a share of the weight's size, at which one weight may be the
other one rounded."""

_LOOKED_AT = 8
"""Number of channels that must lie on a grid, if each channel has its own scale."""

_SPARSE = 8
"""A part counts as few numbers if it is this many times smaller than the whole."""

_STEP = 1 / 8
"""Largest step of four bits, as a share of the largest number."""

_LEVELS = {16: "4 bits", 256: "8 bits"}
_SORTED = 2**16
"""Number of elements of a whole weight that must lie on a grid."""

_LOOK = 2**10
"""Number of elements that are compared first, before all of them are."""

ZERO, TRANSPOSED, FLOAT16, BFLOAT16 = "zero", "transposed", "float16", "bfloat16"
ANOTHER, SCALED, CHANNEL, CHANNELS = "another", "scaled", "channel", "channels"
LAST_BITS, BITS, MOVED, FEW, OTHER = "last-bits", "bits", "moved", "few", "other"
NONFINITE = "nonfinite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a stored weight differs.

    Attributes:
        kind: Kind of difference, one of this module's constants.
        words: End of a sentence that says what stands in place of PyTorch's weight.
        rms: Rms of the difference, relative to the rms of PyTorch's weight.

    """

    kind: str
    words: str
    rms: float


def difference(expected: np.ndarray, actual: np.ndarray) -> Difference:
    """Return how a stored weight differs.

    Both are float32, of the same shape and orientation, and must differ. One number may
    have no axis on one side. Numbers that are not finite in both are left out.
    """
    expected, actual = np.atleast_1d(expected), np.atleast_1d(actual)
    finite = np.isfinite(expected) & np.isfinite(actual)
    if not finite.all():
        same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
        if words := _nonfinite(actual, ~finite & ~same):
            return Difference(kind=NONFINITE, words=words, rms=np.inf)
        expected, actual = (np.where(finite, one, 0) for one in (expected, actual))
    with np.errstate(over="ignore"):
        error = actual - expected
    size = _rms(expected)
    largest = float(np.abs(expected).max(initial=0.0))
    rms = _rms(error) / size if size else np.inf
    if float(np.abs(error).max(initial=0.0)) <= ROUNDING * largest:
        words = f"its last bits differ, by {rms:.0e} of its size"
        return Difference(kind=LAST_BITS, words=words, rms=float(rms))
    kind, words = next(_kinds(expected, actual, error))
    return Difference(kind=kind, words=words, rms=float(rms))


def _nonfinite(actual: np.ndarray, wrong: np.ndarray) -> str:
    """Return how many numbers are not finite on one side alone; empty for none."""
    count = int(wrong.sum())
    if not count:
        return ""
    held = actual[wrong]
    what = "finite, and PyTorch's not"
    if not np.isfinite(held).any():
        what = "infinite" if np.isinf(held).all() else "not finite"
        what = "NaN" if np.isnan(held).all() else what
    at = [int(n) for n in np.argwhere(wrong)[0]]
    where = f"{at}" if count == 1 else f"{at} first"
    are = "is" if count == 1 else "are"
    return f"{count:,} of its {wrong.size:,} numbers {are} {what}, {where}"


def _kinds(
    expected: np.ndarray, actual: np.ndarray, error: np.ndarray
) -> Iterator[tuple[str, str]]:
    """Yield the kinds that fit, the most specific first; the last one always fits."""
    if not actual.any():
        yield ZERO, "it is 0 everywhere"
    if _is_turned(expected, actual):
        yield TRANSPOSED, "it is transposed"
    for kind, rounded in _ROUNDINGS:
        if _equal(rounded(_start(expected)), _start(actual)) and _equal(
            rounded(expected), actual
        ):
            yield kind, f"it is PyTorch's, rounded to {kind}"
    factor = _factor(expected, actual)
    if factor is not None:
        yield SCALED, f"it is {factor:.6g} times PyTorch's"
    count = int((np.abs(error) > ROUNDING * np.abs(expected).max()).sum())
    at = np.unravel_index(int(np.abs(error).argmax()), error.shape)
    few = (
        f"{count:,} of its {error.size:,} numbers differ, {[int(n) for n in at]} most: "
        f"{float(actual[at]):.6g}, PyTorch has {float(expected[at]):.6g}"
    )
    if _SPARSE * count <= error.size // max(error.shape, default=1):
        yield FEW, few  # a small part of one channel
    yield from _by_channel(expected, actual, error)
    if bits := _levels(expected, actual, error):
        yield BITS, f"it is PyTorch's, rounded to {bits}"
    yield from _places(expected, actual)
    if _SPARSE * count <= error.size:
        yield FEW, few
    if not expected.any():
        yield OTHER, "it is not 0 everywhere, as PyTorch's is"
    yield (
        OTHER,
        f"it differs by {_rms(error) / _rms(expected):.1e} of its size",
    )


def _start(values: np.ndarray) -> np.ndarray:
    """Return the first numbers, which distinguish most arrays at little cost."""
    return values.reshape(-1)[:_LOOK]


def _equal(one: np.ndarray, two: np.ndarray) -> bool:
    return np.array_equal(one.flat[:_LOOK], two.flat[:_LOOK]) and np.array_equal(
        one, two
    )


def _is_turned(expected: np.ndarray, actual: np.ndarray) -> bool:
    square = expected.ndim == _MATRIX and expected.shape[0] == expected.shape[1]
    return square and _equal(actual, expected.T)


def _to_float16(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def _cut_to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values).view(np.uint32)
    return (bits & BFLOAT16_BITS).view(np.float32)


_ROUNDINGS = (
    (FLOAT16, _to_float16),
    (BFLOAT16, to_bfloat16),
    (BFLOAT16, _cut_to_bfloat16),
)


def _factor(expected: np.ndarray, actual: np.ndarray) -> float | None:
    """Return the number by which one is the multiple of the other, or None."""
    for ours, theirs in ((_start(expected), _start(actual)), (expected, actual)):
        power = _dot(ours, ours)
        factor = _dot(ours, theirs) / power if power else 0.0
        if not factor or not _is_made(factor * ours.astype(np.float64), theirs):
            return None
    return factor


def _by_channel(
    expected: np.ndarray, actual: np.ndarray, error: np.ndarray
) -> Iterator[tuple[str, str]]:
    """Yield that only one channel differs, or that each has its own factor."""
    if expected.ndim < _MATRIX:
        return
    for axis in (0, 1):
        count = expected.shape[axis]
        rows = np.moveaxis(error, axis, 0).reshape(count, -1)
        wrong = np.flatnonzero(rows.any(axis=1))
        if len(wrong) == 1 and count > _MATRIX:
            (at,) = wrong
            here = actual.take(at, axis)
            factor = _factor(expected.take(at, axis), here)
            how = "is 0" if not here.any() else "differs"
            if factor is not None:
                how = f"is {factor:.6g} times PyTorch's"
            side = "output" if axis == 0 else "input"
            yield CHANNEL, f"{side} channel {at} of {count} {how}, the others agree"
    for axis in (0, 1):
        ours, theirs = (np.moveaxis(one, axis, 0) for one in (expected, actual))
        factors = _factors(ours[:_LOOKED_AT], theirs[:_LOOKED_AT])
        if factors is not None:
            factors = _factors(ours, theirs)
        if factors is not None:
            side = "output" if axis == 0 else "input"
            words = f"{float(factors.min()):.4g} to {float(factors.max()):.4g}"
            yield CHANNELS, f"each {side} channel has its own factor, {words}"


def _factors(expected: np.ndarray, actual: np.ndarray) -> np.ndarray | None:
    """Return the factor of each row between the two arrays, or None."""
    ours, theirs = (one.reshape(len(one), -1) for one in (expected, actual))
    if ours.shape[1] == 1:
        return None
    power = np.einsum("ij,ij->i", ours, ours)
    with np.errstate(over="ignore", invalid="ignore"):
        factors = np.einsum("ij,ij->i", ours, theirs) / np.where(power, power, 1)
    if not np.isfinite(factors).all():
        return None
    return factors if _is_made(factors[:, None] * ours, theirs) else None


def _is_made(made: np.ndarray, actual: np.ndarray) -> bool:
    """Whether numbers are what a rule makes, also without those that are largest.

    A few very large numbers outweigh all others in a root mean square.
    """
    left = np.abs(actual - made)
    if not np.isfinite(left).all() or _rms(left) > _EXACT * _rms(actual):
        return False
    size = np.abs(actual)
    return bool(np.mean(left > _EACH * size + _EXACT * np.median(size)) <= _FEW_LEFT)


def _levels(expected: np.ndarray, actual: np.ndarray, error: np.ndarray) -> str:
    """Return how few bits the numbers have, overall or in each channel; or ""."""
    if _rms(error) >= _NEAR * _rms(expected):
        return ""
    if not _within_a_step(expected, error):
        return ""
    grains = {" for all of it": actual.reshape(1, -1)[:, :_SORTED]}
    if expected.ndim >= _MATRIX:
        some = actual[:_LOOKED_AT]
        grains[" a channel"] = some.reshape(len(some), -1)
        some = np.moveaxis(actual, 1, 0)[:_LOOKED_AT]
        grains[" an input"] = some.reshape(len(some), -1)
    for limit, bits in _LEVELS.items():
        for words, rows in grains.items():
            if rows.shape[1] >= _FEWEST and all(_is_coarse(r, limit) for r in rows):
                return f"{bits}, one scale{words}"
    return ""


def _within_a_step(expected: np.ndarray, error: np.ndarray) -> bool:
    """Whether nearly all numbers are off by less than a step of four bits."""
    most = float(np.abs(expected).max())
    return bool(np.mean(np.abs(error) > _STEP * most) <= _FEW_LEFT)


def _is_coarse(row: np.ndarray, limit: int) -> bool:
    """Whether numbers lie on a grid of few even steps."""
    held = np.unique(row)
    if held.size > limit or held.size < _MATRIX:
        return False
    # Without a grid the smallest step is so small that the range has too many steps.
    places = (held - held[0]) / np.diff(held).min()
    uneven = np.abs(places - np.round(places)).max()
    return bool(places[-1] <= limit and uneven < _EVEN)


def _places(expected: np.ndarray, actual: np.ndarray) -> Iterator[tuple[str, str]]:
    """Yield the ways in which the right numbers are in other places."""
    axes = tuple(range(_MATRIX, expected.ndim))
    if axes and _equal(actual, np.flip(expected, axes)):
        yield MOVED, "its kernels are flipped"
    for axis in range(expected.ndim):
        ours, theirs = (np.moveaxis(one, axis, 0) for one in (expected, actual))
        if len(ours) < _MATRIX:
            continue
        if _equal(theirs, ours[::-1]):
            yield MOVED, f"it is reversed along axis {axis}"
        if _equal(theirs[1:], ours[:-1]) or _equal(theirs[:-1], ours[1:]):
            yield MOVED, f"it is shifted by one along axis {axis}"
    sums = expected.sum(dtype=np.float64), actual.sum(dtype=np.float64)
    alike = abs(sums[0] - sums[1]) <= _EXACT * _rms(expected)
    if alike and np.array_equal(
        np.sort(actual, axis=None), np.sort(expected, axis=None)
    ):
        yield MOVED, "it has the same numbers in other places"


def _rms(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    return float(np.sqrt(_dot(flat, flat) / flat.size)) if flat.size else 0.0


def _dot(one: np.ndarray, two: np.ndarray) -> float:
    """Return the sum of products, in float64 if float32 has too small a range."""
    with np.errstate(over="ignore", invalid="ignore"):
        made = float(np.vdot(one, two))
    if math.isfinite(made):
        return made
    return float(np.vdot(one.astype(np.float64), two.astype(np.float64)))
