"""Arithmetic on errors that rules about them share."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

_PICTURE_AXES = 4


def rms(values: np.ndarray) -> float:
    """Return the root mean square."""
    return math.sqrt(float(np.mean(np.square(values))))


def rms_along(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the root mean square at each place along an axis."""
    others = tuple(a for a in range(values.ndim) if a != axis)
    return np.asarray(np.sqrt(np.mean(np.square(values), axis=others)))


def fit(expected: np.ndarray, actual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's factor by least squares, and what it leaves, relative."""
    power = np.sum(expected * expected, axis=1)
    power = np.where(power, power, 1.0)
    scale = np.sum(expected * actual, axis=1) / power
    left = np.sum((actual - scale[:, None] * expected) ** 2, axis=1)
    return scale, np.sqrt(left / np.maximum(power, np.finfo(np.float64).tiny))


def channel_fit(
    values: np.ndarray, other: np.ndarray, axis: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each channel's factor and offset, by least squares, that make `other`."""
    rest = tuple(a for a in range(values.ndim) if a != axis)
    mean, middle = (v.mean(axis=rest, keepdims=True) for v in (values, other))
    power = np.sum((values - mean) ** 2, axis=rest, keepdims=True)
    both = np.sum((values - mean) * (other - middle), axis=rest, keepdims=True)
    factor = np.divide(both, power, out=np.ones_like(both), where=power > 0)
    return factor, middle - factor * mean


def centred(values: np.ndarray, count: int) -> np.ndarray:
    """Return so many rows, each less its mean."""
    rows = values.reshape(count, -1)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def channel_axes(values: np.ndarray) -> Iterator[int]:
    """Yield the axis of a picture's channels, or a row's last."""
    if values.ndim >= _PICTURE_AXES:
        yield 1
    elif values.ndim > 1:
        yield values.ndim - 1


def groups_of_32(values: np.ndarray) -> tuple[int, ...]:
    """Items and groups of 32, as GroupNorm has them, if the channels divide."""
    if values.ndim >= _PICTURE_AXES and values.shape[1] % 32 == 0:
        return (values.shape[0], 32)
    return ()


def has_bits(values: np.ndarray, bits: int) -> bool:
    """Whether a mantissa of so many bits holds every value."""
    mask = np.uint32((1 << (23 - bits)) - 1)
    return not (np.ascontiguousarray(values).view(np.uint32) & mask).any()


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return float64 values as bfloat16 rounds them, to nearest, ties to even."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).astype(np.float64)
