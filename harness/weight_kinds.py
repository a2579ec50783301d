"""Say how a stored weight differs from PyTorch's; numbers only, no framework."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-6
"""Share of its largest number by which arithmetic in float32 may move a weight."""

_EXACT = 2e-6
"""Share of its size that a scaled weight may keep as a remainder."""

_BFLOAT16_BITS = 16
_MATRIX = 2
_FEWEST = 32
"""Elements from which a number of levels says something."""

_EVEN = 0.02
"""Of a step, how far a number may lie beside its grid."""

_NEAR = 0.5
"""Of its size, the difference up to which one weight may be the other, rounded."""

_LOOKED_AT = 8
"""Channels that must lie on a grid, where each has its own scale."""

_SPARSE = 8
"""A part this much smaller than all of them is few numbers."""

_LEVELS = {16: "4 bits", 256: "8 bits"}
_SORTED = 2**22
"""Elements up to which numbers are sorted, to see whether they only moved."""

ZERO, TRANSPOSED, FLOAT16, BFLOAT16 = "zero", "transposed", "float16", "bfloat16"
ANOTHER, SCALED, CHANNEL, CHANNELS = "another", "scaled", "channel", "channels"
LAST_BITS, BITS, MOVED, FEW, OTHER = "last-bits", "bits", "moved", "few", "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a stored weight differs.

    Attributes:
        kind: One of this module's words.
        words: What it is in place of PyTorch's weight, as the end of a sentence.
        rms: Root mean square of the difference, in that of PyTorch's weight.

    """

    kind: str
    words: str
    rms: float


def difference(expected: np.ndarray, actual: np.ndarray) -> Difference:
    """Return how a stored weight differs.

    Args:
        expected: PyTorch's weight, float32, of any shape.
        actual: The stored one, in that shape and orientation, float32; not equal.

    """
    error = actual - expected
    size = _rms(expected)
    largest = float(np.abs(expected).max(initial=0.0))
    if not np.isfinite(error).all():
        count = int((~np.isfinite(actual)).sum())
        return Difference(
            kind=OTHER, words=f"{count:,} of its numbers are not finite", rms=np.inf
        )
    rms = _rms(error) / size if size else np.inf
    if float(np.abs(error).max(initial=0.0)) <= ROUNDING * largest:
        words = f"its last bits differ, by {rms:.0e} of its size"
        return Difference(kind=LAST_BITS, words=words, rms=float(rms))
    kind, words = next(_kinds(expected, actual, error))
    return Difference(kind=kind, words=words, rms=float(rms))


def _kinds(
    expected: np.ndarray, actual: np.ndarray, error: np.ndarray
) -> Iterator[tuple[str, str]]:
    """Yield what it is, the most particular first; the last always fits."""
    if not actual.any():
        yield ZERO, "it is 0 everywhere"
    if _is_turned(expected, actual):
        yield TRANSPOSED, "it is transposed"
    with np.errstate(over="ignore"):
        if np.array_equal(actual, expected.astype(np.float16).astype(np.float32)):
            yield FLOAT16, "it is PyTorch's, rounded to float16"
    if any(np.array_equal(actual, one) for one in _in_bfloat16(expected)):
        yield BFLOAT16, "it is PyTorch's, rounded to bfloat16"
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
    yield OTHER, f"it differs by {_rms(error) / _rms(expected):.1e} of its size"


def _is_turned(expected: np.ndarray, actual: np.ndarray) -> bool:
    square = expected.ndim == _MATRIX and expected.shape[0] == expected.shape[1]
    return square and np.array_equal(actual, expected.T)


def _in_bfloat16(expected: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a float32 array rounded to bfloat16, to nearest even and towards 0."""
    bits = np.ascontiguousarray(expected).view(np.uint32)
    mask = np.uint32(0xFFFF0000)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> _BFLOAT16_BITS) & np.uint32(1))
    for rounded in (nearest, bits):
        yield (rounded & mask).view(np.float32)


def _factor(expected: np.ndarray, actual: np.ndarray) -> float | None:
    """Return the number that makes one of the other, or None."""
    power = float(np.vdot(expected, expected))
    factor = float(np.vdot(expected, actual)) / power if power else 0.0
    rest = _rms(actual - np.float32(factor) * expected)
    return factor if factor and rest <= _EXACT * _rms(actual) else None


def _by_channel(
    expected: np.ndarray, actual: np.ndarray, error: np.ndarray
) -> Iterator[tuple[str, str]]:
    """Yield that one channel alone differs, or that each has its own factor."""
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
        ours = np.moveaxis(expected, axis, 0).reshape(expected.shape[axis], -1)
        theirs = np.moveaxis(actual, axis, 0).reshape(ours.shape)
        if ours.shape[1] == 1:
            continue
        power = np.einsum("ij,ij->i", ours, ours)
        factors = np.einsum("ij,ij->i", ours, theirs) / np.where(power, power, 1)
        if _rms(theirs - factors[:, None] * ours) <= _EXACT * _rms(theirs):
            low, high = float(factors.min()), float(factors.max())
            side = "output" if axis == 0 else "input"
            factors = f"{low:.4g} to {high:.4g}"
            yield CHANNELS, f"each {side} channel has its own factor, {factors}"


def _levels(expected: np.ndarray, actual: np.ndarray, error: np.ndarray) -> str:
    """Return how few bits its numbers have, whole or in each channel; or nothing."""
    for limit, bits in _LEVELS.items():
        grains = {" for all of it": actual.reshape(1, -1)}
        if expected.ndim >= _MATRIX:
            grains[" a channel"] = actual.reshape(actual.shape[0], -1)
            grains[" an input"] = np.moveaxis(actual, 1, 0).reshape(actual.shape[1], -1)
        for words, rows in grains.items():
            near = rows.shape[1] >= _FEWEST and _rms(error) < _NEAR * _rms(expected)
            if near and all(_is_coarse(row, limit) for row in rows[:_LOOKED_AT]):
                return f"{bits}, one scale{words}"
    return ""


def _is_coarse(row: np.ndarray, limit: int) -> bool:
    """Whether numbers lie on a grid of few even steps."""
    held = np.unique(row)
    if held.size > limit or held.size < _MATRIX:
        return False
    # What has no grid has a least step so small that the span holds too many of it.
    places = (held - held[0]) / np.diff(held).min()
    uneven = np.abs(places - np.round(places)).max()
    return bool(places[-1] <= limit and uneven < _EVEN)


def _places(expected: np.ndarray, actual: np.ndarray) -> Iterator[tuple[str, str]]:
    """Yield how numbers that are right lie in other places."""
    if expected.ndim > _MATRIX and np.array_equal(
        actual, np.flip(expected, tuple(range(_MATRIX, expected.ndim)))
    ):
        yield MOVED, "its kernels are flipped"
    for axis in range(expected.ndim):
        if expected.shape[axis] < _MATRIX:
            continue
        if np.array_equal(actual, np.flip(expected, axis)):
            yield MOVED, f"it is reversed along axis {axis}"
        for step in (1, -1):
            if np.array_equal(actual, np.roll(expected, step, axis)):
                yield MOVED, f"it is shifted by one along axis {axis}"
    if expected.size <= _SORTED and np.array_equal(
        np.sort(actual, axis=None), np.sort(expected, axis=None)
    ):
        yield MOVED, "it has the same numbers in other places"


def _rms(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    return float(np.sqrt(np.vdot(flat, flat) / flat.size)) if flat.size else 0.0
