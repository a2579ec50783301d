"""Softmax and attention in other forms: another axis, scale or mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from harness.measure.operation import MOST, Form, Operation
from harness.measure.residuals import rms

_STEPS, _POWERS = 5, 4
_MASKED = -1e3
_TINY = 1e-30


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return softmax along an axis; rows of minus infinity alone are NaN."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(x - x.max(axis=axis, keepdims=True))
        return np.asarray(raised / raised.sum(axis=axis, keepdims=True))


def softmax_forms(
    it: Operation, _expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield softmax over other axes, and of its argument times a number."""
    x, dim = it.tensor("self", "input"), it.settings.get("dim", -1)
    if x is None or not isinstance(dim, int):
        return
    own = dim % x.ndim
    for axis in range(x.ndim):
        if axis != own:
            yield (
                f"softmax runs over axis {axis}, not axis {own}: another axis",
                softmax(x, axis),
            )
    heat = _heat(x, actual, own)
    if heat is not None:
        words = f"softmax of {heat:.5g} times its argument: a temperature or a scale"
        yield words, softmax(heat * x, own)


def _heat(x: np.ndarray, actual: np.ndarray, axis: int) -> float | None:
    """Return the factor of softmax's argument, read from the logarithm of its value."""
    known = (actual > _TINY) & (x > _MASKED)
    if x.shape != actual.shape or not known.any():
        return None
    # Large values carry the fewest rounding errors in their logarithm.
    weight = np.where(known, actual, 0.0)
    total = np.maximum(weight.sum(axis=axis, keepdims=True), _TINY)

    def centred(values: np.ndarray) -> np.ndarray:
        return values - (weight * values).sum(axis=axis, keepdims=True) / total

    one = centred(np.where(known, x, 0.0))
    two = centred(np.log(np.where(known, actual, 1.0)))
    power = float(np.sum(weight * one * one))
    return float(np.sum(weight * one * two)) / power if power else None


def attention_forms(
    it: Operation, _expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield attention with another scale, axis or mask, or of other arguments."""
    q, k, v = (it.tensor(name) for name in ("query", "key", "value"))
    if q is None or k is None or v is None or q.size * k.shape[-2] > MOST:
        return
    told = it.settings.get("scale")
    scale = told if isinstance(told, float) else 1 / math.sqrt(q.shape[-1])
    mask = _mask_of(it, q, k)
    products = q @ np.swapaxes(k, -1, -2)

    def attend(
        factor: float, axis: int = -1, mask: np.ndarray | None = mask
    ) -> np.ndarray:
        scores = products * factor
        return np.asarray(softmax(scores if mask is None else scores + mask, axis) @ v)

    yield "the scale of attention is applied twice", attend(scale * scale)
    yield "the scale of attention is not applied", attend(1.0)
    for axis in reversed(range(products.ndim - 1)):  # a batch's axis last
        yield (
            f"attention's softmax runs over axis {axis}, not the keys: another axis",
            attend(scale, axis),
        )
    if mask is not None:
        yield "the mask of attention is dropped", attend(scale, mask=None)
    if k.shape == v.shape:
        scores = products * scale
        scores = scores if mask is None else scores + mask
        yield "attention takes its keys for values", softmax(scores) @ k
    rows, columns = products.shape[-2:]
    if mask is None and rows == columns:
        yield "attention is masked causally", attend(scale, mask=_causal(rows, columns))
    factor = _searched(attend, actual, scale)
    words = f"attention's scale is {factor:.5g}, not {scale:.5g}: a temperature"
    yield words, attend(factor)


def _causal(rows: int, columns: int) -> np.ndarray:
    return np.where(np.tri(rows, columns, dtype=bool), 0.0, -np.inf)


def _mask_of(it: Operation, q: np.ndarray, k: np.ndarray) -> np.ndarray | None:
    mask = it.tensor("attn_mask")
    if mask is not None:
        return np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask
    return _causal(q.shape[-2], k.shape[-2]) if it.settings.get("is_causal") else None


def _searched(
    at: Callable[[float], np.ndarray], actual: np.ndarray, start: float
) -> float:
    """Return the number, powers of two from `start` at most, that fits best."""
    tried = [start * 2.0**power for power in range(-_POWERS, _POWERS + 1)]
    best = min(tried, key=lambda factor: rms(at(factor) - actual))
    for _ in range(_STEPS):
        step = best * 1e-4
        here = at(best)
        slope = (at(best + step) - here) / step
        power = float(np.sum(slope * slope))
        if not power or not math.isfinite(power):
            return best
        best += float(np.sum(slope * (actual - here))) / power
    return best
