"""Other forms of operators: results of a different reading of the same inputs.

A form is an operator with one change: softmax over another axis, a scale applied twice,
a mask dropped, another value read. It is computed from PyTorch's own inputs. If a
candidate's value equals a form, the candidate computed that form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from harness.plugins.patterns.arithmetic import ACTIVATIONS, channel_fit, rms
from harness.plugins.patterns.observed import (
    MOST,
    Form,
    Operation,
    halves_and_seconds,
    other_orders,
    wide,
)
from harness.plugins.patterns.weighted_forms import (
    convolution_forms,
    embedding_forms,
    factor_words,
    linear_forms,
)

_FEWEST = 4
"""Smallest number of columns from which a geometric progression is read."""

_MOVES_TRIED = 24
"""Largest number of axis orders that are tried: all orders of four axes."""

_EPSILONS = (1e-12, 0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
"""Common epsilons of normalisations."""

_KNOWN = 1e-3
"""Largest relative error at which an operator that is computed again counts as
understood."""


def forms(it: Operation, expected: np.ndarray, actual: np.ndarray) -> Iterator[Form]:
    """Yield other forms of an operator with their messages, specific ones first.

    `expected` is in float64. A form with a free number is fitted to `actual`.
    """
    if made := _FORMS.get(it.op):
        yield from made(it, expected, actual)
    yield from _elsewhere(it, expected)
    yield from it.mended(expected, actual)


@dataclass(frozen=True, slots=True)
class _Norm:
    """A normalisation: the rows that it normalises, and the axis of its channels."""

    rows: np.ndarray
    shape: tuple[int, ...]
    axis: int
    eps: float

    def apply(
        self,
        weight: np.ndarray | float,
        bias: np.ndarray | float,
        normal: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return normalised rows, its own or given ones, with scale and bias."""
        made = self.normal() if normal is None else normal
        return np.asarray(made.reshape(self.shape) * weight + bias)

    def normal(self) -> np.ndarray:
        """Return the rows minus their mean, divided by their standard deviation."""
        centred = self.rows - self.rows.mean(axis=1, keepdims=True)
        power = np.mean(centred * centred, axis=1, keepdims=True)
        return np.asarray(centred / np.sqrt(power + self.eps))


def _norm_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    x = it.tensor("input", "self")
    norm = _norm_of(it, x)
    if norm is None or x is None or x.shape != expected.shape:
        return
    # Scale and bias are fitted to PyTorch's own values, so that no weights are needed.
    weight, bias = channel_fit(norm.apply(1.0, 0.0), expected, norm.axis)
    if rms(norm.apply(weight, bias) - expected) > _KNOWN * rms(expected):
        return
    yield "the scale of the normalisation is dropped", norm.apply(1.0, bias)
    yield "the bias of the normalisation is dropped", norm.apply(weight, 0.0)
    words = "the scale and the bias of the normalisation are exchanged"
    yield words, norm.apply(bias, weight)
    for eps in _EPSILONS:
        words = f"epsilon is {eps:g} instead of {norm.eps:g}"
        yield words, replace(norm, eps=eps).apply(weight, bias)
    for words, normal in _normals(norm):
        yield words, norm.apply(weight, bias, normal)
    for groups in _group_counts(it, x):
        words = f"the normalisation has {groups} groups"
        rows = x.reshape(len(x) * groups, -1)
        yield words, replace(norm, rows=rows).apply(weight, bias)
    for words, value in _other_inputs(it, x, norm.axis):
        twin = _norm_of(it, value)
        if twin is not None:
            yield words, twin.apply(weight, bias)


def _group_counts(it: Operation, x: np.ndarray) -> Iterator[int]:
    told = it.settings.get("num_groups")
    for count in range(1, x.shape[1] + 1):
        if isinstance(told, int) and count != told and x.shape[1] % count == 0:
            yield count


def _other_inputs(it: Operation, x: np.ndarray, axis: int) -> Iterator[Form]:
    yield from it.reordered()
    for step in (1, -1):
        words = f"its input is shifted by one along axis {axis}: the channels"
        yield words, np.roll(x, step, axis)
    for name, other in it.others(x.shape):
        yield f"it is made of {name}: in another value's place", wide(other)


def _norm_of(it: Operation, x: np.ndarray | None) -> _Norm | None:
    eps = it.settings.get("eps", 1e-5)
    if x is None or x.ndim < 2 or not isinstance(eps, float):  # noqa: PLR2004  # rows of values
        return None
    if "group" in it.op:
        groups = it.settings.get("num_groups")
        if not isinstance(groups, int):
            return None
        return _Norm(x.reshape(len(x) * groups, -1), x.shape, 1, eps)
    told = it.settings.get("normalized_shape")
    if not isinstance(told, list) or len(told) != 1:
        return None
    return _Norm(x.reshape(-1, told[0]), x.shape, x.ndim - 1, eps)


def _normals(norm: _Norm) -> Iterator[Form]:
    """Yield other ways to normalise rows."""
    x, eps = norm.rows, norm.eps
    mean = x.mean(axis=1, keepdims=True)
    off = x - mean.astype(np.float16)
    power = np.mean(off * off, axis=1, keepdims=True)
    words = "the mean of the normalisation is rounded to float16: statistics in float16"
    yield words, off / np.sqrt(power + eps)
    centred = x - mean
    power = np.mean(centred * centred, axis=1, keepdims=True)
    count = x.shape[1]
    if count > 1:
        words = "the variance is divided by one less than the count of values"
        yield words, centred / np.sqrt(power * count / (count - 1) + eps)
    whole = np.mean(x * x, axis=1, keepdims=True)
    yield "no mean is taken off: RMS normalisation", x / np.sqrt(whole + eps)
    yield "nothing is normalised: each row is scaled by its own factor", x
    yield "epsilon is added outside the root", centred / (np.sqrt(power) + eps)


def _index_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    """Yield the same rows of other values, and other rows of the same value."""
    x = it.tensor("self")
    rows = tuple(value for argument, _, value in it.arguments if argument == "indices")
    if x is None or not rows or x[rows].shape != expected.shape:
        return
    for name, other in it.others(x.shape):
        yield f"it is made of {name}: in another value's place", wide(other)[rows]
    for at in range(x.shape[len(rows) - 1]):
        other_rows = (*rows[:-1], np.full_like(rows[-1], at))
        yield f"row {at} of each item is taken: in another value's place", x[other_rows]


def _matmul_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    """Yield a product of other values, or of values read in another layout."""
    one, two = it.tensor("self"), it.tensor("other", "mat2")
    if (
        one is None
        or two is None
        or expected.size * one.shape[-1] * _MOVES_TRIED > MOST
    ):
        return
    for name, other in it.others(two.shape):
        yield f"it multiplies by {name}: in another value's place", one @ wide(other)
    for order in list(permutations(range(two.ndim)))[1:]:
        read = np.ascontiguousarray(two.transpose(order)).reshape(two.shape)
        words = "an operand is reshaped where PyTorch transposes it: a transposition"
        yield words, one @ read


def _cat_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    dim = it.settings.get("dim", 0)
    parts = [value for argument, _, value in it.arguments if argument == "tensors"]
    if not isinstance(dim, int) or not parts:
        return
    if sum(part.shape[dim] for part in parts) == expected.shape[dim]:
        for made in other_orders(parts, dim):
            yield "the parts that are put together are exchanged: another order", made


def _sum_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield a sum with one term scaled, moved or exchanged."""
    terms = [(name, wide(value)) for _, name, value in it.arguments]
    for name, term in terms:
        if term.shape != expected.shape or not np.isfinite(term).all():
            continue
        rest = expected - term
        # The other term may be a known value, or the right one in another layout.
        for other, value in it.others(expected.shape):
            if other not in {known for known, _ in terms}:
                yield f"it adds {other}: in another value's place", term + value
        for axis in range(expected.ndim):
            for step in (1, -1):
                words = f"what is added is shifted by one along axis {axis}"
                yield f"{words}: a position late", term + np.roll(rest, step, axis)
        yield from _other_constant(name, term, rest, actual)
        power = float(np.sum(term * term))
        if power:
            factor = float(np.sum(term * (actual - rest))) / power
            words = f"{name} is scaled by {factor:.5g} before it is added"
            if min(abs(factor), abs(factor - 2)) > _KNOWN:  # not missing and not twice
                yield words, rest + factor * term


def _other_constant(
    name: str, term: np.ndarray, rest: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield a sum with another constant: one that each item of a batch gets."""
    if len(rest) < 2 or np.ptp(rest, axis=0).max() > _KNOWN * rms(rest):  # noqa: PLR2004
        return
    power = float(np.sum(rest * rest))
    if power:
        factor = float(np.sum(rest * (actual - term))) / power
        words = f"the constant that is added to {name} is {factor:.5g} times PyTorch's"
        yield words, term + factor * rest
    held = np.mean(actual - term, axis=0, keepdims=True)
    yield f"another constant is added to {name}", term + held


_OF_ONE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "silu": ACTIVATIONS["SiLU"],
    "gelu": ACTIVATIONS["GELU"],
    "sigmoid": ACTIVATIONS["the sigmoid"],
    "tanh": np.tanh,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
}
"""PyTorch's functions of one number, whose argument may be multiplied."""


def _function_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield the function of its argument times a number."""
    x, of = it.tensor("self", "input"), _OF_ONE[it.op]
    if x is None or x.shape != expected.shape:
        return
    if rms(of(x) - expected) > _KNOWN * rms(expected):  # another form of it
        return
    factor = _searched(lambda factor: of(factor * x), actual, 1.0)
    if abs(factor - 1) > _KNOWN:
        yield factor_words(factor), of(factor * x)


def _slice_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    """Yield every second place for one half, and one half for every second place."""
    x = it.tensor("self", "input")
    for mine, others, words in halves_and_seconds(x, expected.shape):
        if any(np.array_equal(made, expected) for made in mine):
            for made in others:
                yield words, made


def _write_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield rows that are written elsewhere, or not, and what then stands there."""
    x = it.tensor("self", "input", "data")
    if x is None or x.shape != expected.shape:
        return
    for axis in range(x.ndim):
        was, due, has = (
            np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1)
            for one in (x, expected, actual)
        )
        wrong = [int(at) for at in np.flatnonzero(np.any(has != due, axis=1))]
        if not 0 < len(wrong) <= len(due) // 2:
            continue
        kept = [at for at in wrong if np.array_equal(has[at], was[at])]
        taken = {
            at: other
            for at in wrong
            if at not in kept
            for other in range(len(due))
            if np.array_equal(has[at], due[other]) and other != at
        }
        if len(kept) + len(taken) != len(wrong) or not kept:
            continue
        words = f"along axis {axis} it does not write {_places(kept)}"
        negative = _negative_index(it)
        if taken:
            pairs = ", ".join(f"{at} has what {of} gets" for at, of in taken.items())
            twice = all((due[at] != was[at]).any() for at in taken)
            words += f", and {pairs}: {'an index is repeated' if twice else _OTHERS}"
        elif negative:
            words += f", where an index is {negative}"
        yield words, actual


_OTHERS = "other indices"


def _places(places: list[int]) -> str:
    shown = ", ".join(map(str, places[:_NAMED]))
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f"{'place' if len(places) == 1 else 'places'} {shown}{more}"


_NAMED = 4


def _negative_index(it: Operation) -> str:
    """Return the least index that counts from the end; empty where there is none."""
    least = [
        int(value.min())
        for argument, _, value in it.arguments
        if argument in {"indices", "index"} and value.dtype.kind == "i" and value.size
    ]
    return str(min(least)) if least and min(least) < 0 else ""


def _root_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    """Yield a root whose argument has no epsilon, or with one outside."""
    x = it.tensor("self", "input")
    if x is None or x.shape != expected.shape:
        return
    sign = -0.5 if it.op == "rsqrt" else 0.5
    for eps in _EPSILONS:
        bare = x - eps
        if not eps or (bare < 0).any():
            continue
        yield f"epsilon {eps:g} is not under the root", bare**sign
        for outside in _EPSILONS:
            if outside and sign > 0:
                words = f"epsilon is {outside:g} outside the root, not {eps:g} under it"
                yield words, np.sqrt(bare) + outside


def _resize_forms(
    it: Operation, expected: np.ndarray, _actual: np.ndarray
) -> Iterator[Form]:
    x = it.tensor("self", "input")
    if x is None or x.ndim != expected.ndim or x.ndim < 3:  # noqa: PLR2004  # a picture
        return
    for words, place in _PLACES.items():
        made = x
        for axis in range(2, x.ndim):
            size, sizes = x.shape[axis], expected.shape[axis]
            at = place(np.arange(sizes), size / sizes)
            made = np.take(made, np.clip(at.astype(int), 0, size - 1), axis)
        yield f"the nearest pixel is taken {words}: its rounding mode is another", made


_PLACES: Mapping[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "rounded up": lambda at, step: np.ceil(at * step),
    "rounded half up": lambda at, step: np.floor(at * step + 0.5),
    "rounded half down": lambda at, step: np.ceil(at * step - 0.5),
    "of pixel centres rounded down": lambda at, step: np.floor((at + 0.5) * step - 0.5),
    "of pixel centres rounded up": lambda at, step: np.ceil((at + 0.5) * step - 0.5),
}
"""Ways to choose the nearest pixel, given the places and the input pixels per place."""


def _product_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield a product whose constant row is another geometric progression."""
    x = it.tensor("self", "input")
    if x is None or expected.ndim < 2 or x.shape[-1:] == expected.shape[-1:]:  # noqa: PLR2004
        return
    row = np.argmax(np.abs(expected[..., 0]).ravel())
    was, now = (
        values.reshape(-1, values.shape[-1])[row] for values in (expected, actual)
    )
    if len(was) < _FEWEST or not (was[0] and (was * now > 0).all()):
        return
    steps = np.diff(np.log(now / was))
    if np.ptp(steps) > _KNOWN * np.abs(steps).max():
        return
    ratio = now / was
    words = "each column is scaled by its own power of one factor: other frequencies"
    yield words, expected * ratio


def _elsewhere(it: Operation, expected: np.ndarray) -> Iterator[Form]:
    """Yield recorded values that may stand in place of a moved value."""
    if it.op not in _MOVES:
        return
    own = next((name for _, name, _ in it.arguments), "")
    shape = it.arguments[0][2].shape if it.arguments else expected.shape
    for name, other in it.others(shape):
        if name != own and other.size == expected.size:
            yield (
                f"it is {name}: in another value's place",
                other.reshape(expected.shape),
            )


_MOVES = ("view", "reshape", "expand", "permute", "transpose", "alias", "clone", "to")


_STEPS, _POWERS = 5, 4
_MASKED = -1e3
_TINY = 1e-30


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return softmax along an axis; a row of only minus infinity gives NaN."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(x - x.max(axis=axis, keepdims=True))
        return np.asarray(raised / raised.sum(axis=axis, keepdims=True))


def softmax_forms(
    it: Operation, _expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield softmax over other axes, or of its argument times a number."""
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
    """Return the factor of softmax's argument, from the logarithm of its value."""
    known = (actual > _TINY) & (x > _MASKED)
    if x.shape != actual.shape or not known.any():
        return None
    # The logarithm of a large value has the smallest rounding error.
    weight = np.where(known, actual, 0.0)
    total = np.maximum(weight.sum(axis=axis, keepdims=True), _TINY)

    def centred(values: np.ndarray) -> np.ndarray:
        return values - (weight * values).sum(axis=axis, keepdims=True) / total

    one = centred(np.where(known, x, 0.0))
    two = centred(np.log(np.where(known, actual, 1.0)))
    power = float(np.sum(weight * one * one))
    return float(np.sum(weight * one * two)) / power if power else None


_WITH_HEADS = 4
"""Axes of attention's arguments: batch, heads, tokens, width."""


def attention_forms(
    it: Operation, _expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield attention with another scale, axis or mask, or with other arguments."""
    q, k, v = (it.tensor(name) for name in ("query", "key", "value"))
    if q is None or k is None or v is None or q.size * k.shape[-2] > MOST:
        return
    if q.ndim == k.ndim == v.ndim == _WITH_HEADS and k.shape[1]:
        # Several heads of the query may share one of key and value.
        k, v = (np.repeat(one, q.shape[1] // one.shape[1], axis=1) for one in (k, v))
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
    for axis in reversed(range(products.ndim - 1)):  # the batch axis comes last
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
    """Return the number, within powers of two from `start`, that fits best."""
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


_FORMS: Mapping[str, Callable[[Operation, np.ndarray, np.ndarray], Iterator[Form]]] = {
    "softmax": softmax_forms,
    "_softmax": softmax_forms,
    "scaled_dot_product_attention": attention_forms,
    "layer_norm": _norm_forms,
    "native_layer_norm": _norm_forms,
    "group_norm": _norm_forms,
    "native_group_norm": _norm_forms,
    "cat": _cat_forms,
    "index": _index_forms,
    "matmul": _matmul_forms,
    "bmm": _matmul_forms,
    "add": _sum_forms,
    **dict.fromkeys(_OF_ONE, _function_forms),
    "slice": _slice_forms,
    "index_put": _write_forms,
    "index_copy": _write_forms,
    "scatter": _write_forms,
    "slice_scatter": _write_forms,
    "sqrt": _root_forms,
    "rsqrt": _root_forms,
    "upsample_nearest2d": _resize_forms,
    "mul": _product_forms,
    "linear": linear_forms,
    "addmm": linear_forms,
    "conv2d": convolution_forms,
    "convolution": convolution_forms,
    "embedding": embedding_forms,
}
"""The other forms of each PyTorch operator."""
