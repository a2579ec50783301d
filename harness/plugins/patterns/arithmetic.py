"""Arithmetic that rules about errors share: fits, roundings, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

_PICTURE_AXES = 4


def rms(values: np.ndarray) -> float:
    """Return the root mean square."""
    return math.sqrt(float(np.mean(np.square(values))))


_WILD = 30.0
"""Multiple of the usual error above which an error is left out of a second look."""

_SMALL_PART = 0.1
"""Largest share of an error that may be left by what is said to explain it."""


def explains(
    left: np.ndarray, error: np.ndarray, share: float, noise: float = 0.0
) -> bool:
    """Whether a pattern explains an error, given what it leaves of it.

    Every pattern that is claimed is held to this. What is left must be a small part of
    the error: `share` of it, or up to a tenth where that is within `noise`. A few very
    large errors outweigh all others in a root mean square, so of the usual errors alone
    a tenth may be left at most.
    """
    whole = rms(error)
    if rms(left) > max(share * whole, min(noise, _SMALL_PART * whole)):
        return False
    size = np.abs(error)
    off = size > noise
    if not off.any():
        return bool(whole)
    usual = off & (size <= _WILD * float(np.median(size[off])))
    return rms(left[usual]) <= max(_SMALL_PART * rms(error[usual]), noise)


def usual_size(values: np.ndarray) -> float:
    """Return the root mean square without rare values that outweigh all others.

    The scores of attention are an example: a mask adds -3.4e38 to some of them.
    """
    size = np.abs(values)
    some = size[size > 0]
    if not some.size:
        return 0.0
    return rms(some[some <= _RARE * float(np.median(some))])


_RARE = 1e4
"""Multiple of the usual magnitude above which a value does not count for its size."""


def rms_along(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the root mean square at each index of an axis."""
    others = tuple(a for a in range(values.ndim) if a != axis)
    return np.asarray(np.sqrt(np.mean(np.square(values), axis=others)))


def fit(expected: np.ndarray, actual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's least-squares factor, and the relative remainder."""
    power = np.sum(expected * expected, axis=1)
    power = np.where(power, power, 1.0)
    scale = np.sum(expected * actual, axis=1) / power
    left = np.sum((actual - scale[:, None] * expected) ** 2, axis=1)
    return scale, np.sqrt(left / np.maximum(power, np.finfo(np.float64).tiny))


def channel_fit(
    values: np.ndarray, other: np.ndarray, axis: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each channel's factor and offset that fit `other` by least squares."""
    rest = tuple(a for a in range(values.ndim) if a != axis)
    mean, middle = (v.mean(axis=rest, keepdims=True) for v in (values, other))
    power = np.sum((values - mean) ** 2, axis=rest, keepdims=True)
    both = np.sum((values - mean) * (other - middle), axis=rest, keepdims=True)
    factor = np.divide(both, power, out=np.ones_like(both), where=power > 0)
    return factor, middle - factor * mean


def centred(values: np.ndarray, count: int) -> np.ndarray:
    """Return the values as `count` rows, each minus its mean."""
    rows = values.reshape(count, -1)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def channel_axes(values: np.ndarray) -> Iterator[int]:
    """Yield the channel axis of a picture, or the last axis of rows."""
    if values.ndim >= _PICTURE_AXES:
        yield 1
    elif values.ndim > 1:
        yield values.ndim - 1


def groups_of_32(values: np.ndarray) -> tuple[int, ...]:
    """Return items and groups of 32, as in GroupNorm, if the channels divide."""
    if values.ndim >= _PICTURE_AXES and values.shape[1] % 32 == 0:
        return (values.shape[0], 32)
    return ()


def has_bits(values: np.ndarray, bits: int) -> bool:
    """Whether a mantissa of `bits` bits can hold every value."""
    mask = np.uint32((1 << (23 - bits)) - 1)
    return not (np.ascontiguousarray(values).view(np.uint32) & mask).any()


GELU_PEAK, GELU_WIDTH, GELU_ERROR = 2.7, 0.8, 4.8e-4
"""|x| where GELU's tanh form differs most from its erf form, the width around it, and
the largest difference. All three were found numerically."""

GELU_LEAST = -0.05
"""Lower limit of GELU's values at x < -2; the upper limit is 0."""

QUICK_ERROR = 0.0204
"""Largest difference between x·sigmoid(1.702x) and GELU, found numerically."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # It uses tanh, which does not overflow.
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _gelu(x: np.ndarray) -> np.ndarray:
    """Return x·Φ(x) (D. Hendrycks, K. Gimpel, *Gaussian error linear units*, 2016)."""
    return np.asarray(0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))))


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    """Return the same paper's approximation, which BERT's first code used."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "ReLU": lambda x: np.maximum(x, 0.0),
    "SiLU": lambda x: x * _sigmoid(x),
    "QuickGELU, x·sigmoid(1.702x)": lambda x: x * _sigmoid(1.702 * x),
    "GELU's tanh form": _tanh_gelu,
    "GELU": _gelu,
    "the sigmoid": _sigmoid,
    "tanh": np.tanh,
}
"""Activation functions by name. The paper that `_gelu` cites also has the 1.702 of
QuickGELU."""


def gelu_form(expected: np.ndarray, error: np.ndarray) -> str:
    """Return a message about the form that replaced GELU, from GELU's values.

    `expected` has GELU's values in float64, and `error` the candidate's minus these.
    Above 0 a value of GELU has one argument, so there the form is computed from it.
    """
    magnitude = np.abs(error)
    at = float(expected.flat[int(magnitude.argmax())])
    known = (expected > 0) & (expected < _GELU_KNOWN)
    if magnitude.max() > QUICK_ERROR or not known.any():
        return ""
    value, found = expected[known], error[known]
    x = np.interp(value, _gelu(_GELU_GRID), _GELU_GRID)
    # Above 1 the value of GELU is nearly equal to its argument.
    near = abs(abs(at) - GELU_PEAK) <= GELU_WIDTH or GELU_LEAST < at < 0
    left = found - (_tanh_gelu(x) - _gelu(x))
    if near and magnitude.max() <= GELU_ERROR and explains(left, found, _SMALL_PART):
        return "the error peaks near |x| = 2.7: GELU's tanh form, not its erf form"
    left = found - (ACTIVATIONS["QuickGELU, x·sigmoid(1.702x)"](x) - _gelu(x))
    if explains(left, found, _SMALL_PART):
        return f"GELU as x·sigmoid(1.702x), which is off by {QUICK_ERROR} at most"
    return ""


_GELU_KNOWN = 8.0
_GELU_GRID = np.linspace(0.0, _GELU_KNOWN, 8193)
"""Arguments between which GELU's inverse is interpolated. The error is below 1e-7."""
