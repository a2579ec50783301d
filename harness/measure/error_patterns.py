"""What an error looks like: rules over two arrays, each with its usual cause.

The most particular rule comes first; what no rule knows gets no words. Each rule is
from a bug that people met: docs/signatures.md tells which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations

import numpy as np

from harness.core.comparison import Comparison
from harness.measure.activations import ACTIVATIONS, gelu_form
from harness.measure.operation import Operation
from harness.measure.patterns import (
    border,
    channels_scaled,
    constant,
    dropped,
    halves,
    mask,
    other_form,
    other_weights,
    truth,
)
from harness.measure.residuals import (
    centred,
    channel_axes,
    fit,
    groups_of_32,
    has_bits,
    rms,
    rms_along,
    to_bfloat16,
)
from harness.measure.seen import NOISE, RIGHT, Seen
from harness.measure.weighted_forms import weights_fit

FLOAT16_MAX = 65504.0
FLOAT16_WHOLE = 2048.0
"""Beyond it float16 holds no odd number."""

_SMALL = 1e-3

_FEW = 0.01
_TENTH = 0.1
_HALF = 0.5
_MOST = 0.9
_ENDS = 4
_LOOKED_AT = 4096
_SUMMED, _TILED = 64.0, 1100.0
"""Noise floors that rounding in float32 reaches at most: by another order of summation,
and where a convolution was computed by Winograd's large tiles. Measured: 7.8 in the
full-size networks without such tiles; with them 58.5 in the decoder of digits, 299 in
SDXL's UNet, 1,058 in Stable Diffusion 1.5's (README, fixtures/*/tolerances.toml)."""

_NOISE = 0.3
"""Share of a value beyond which an error is another value: four bits leave a tenth."""

_SORTED = 2**20
"""Elements beyond which looking for them in other places takes too long."""

_AXES = 3
Index = tuple[slice, ...]


def beyond_noise(found: Comparison) -> bool:
    """Whether an error is large enough to be looked at."""
    if found.nonfinite_mismatched or found.floor_multiple is None:
        return bool(found.nonfinite_mismatched or found.max_abs)
    return found.floor_multiple > RIGHT


def signature(
    expected: np.ndarray,
    actual: np.ndarray,
    floor_rms: float | None,
    op: str,
    near: Mapping[str, np.ndarray] | None = None,
    *,
    it: Operation | None = None,
) -> str:
    """Return in words what an error looks like; empty if like nothing known.

    Args:
        expected: The reference's value.
        actual: The candidate's, of the same shape.
        floor_rms: The value's noise floor, in its own unit, if it is known.
        op: The PyTorch operator that made it.
        near: Other values of the reference, by name: what it was made from, or the
            other outputs; one of them may be in its place, or missing from it.
        it: The operator with what it was given, to be computed in other forms; None
            where that is not at hand.

    """
    if expected.shape != actual.shape or not expected.size:
        return ""
    kinds = {expected.dtype.kind, actual.dtype.kind}
    if kinds == {"b"}:
        return truth(expected, actual, it)
    if not kinds <= set("fiu"):
        return ""
    finite = np.isfinite(expected) & np.isfinite(actual)
    if not finite.all():
        return _nonfinite(expected, actual)
    error = Seen(
        expected.astype(np.float64),
        actual.astype(np.float64),
        floor_rms or 0.0,
        op,
        near or {},
        expected.dtype.kind in "iu",
        it,
    )
    if not error.error.any():
        return ""
    return next((words for rule in _RULES if (words := rule(error))), "")


def _nonfinite(expected: np.ndarray, actual: np.ndarray) -> str:
    lost = np.isfinite(expected) & ~np.isfinite(actual)
    count = int(lost.sum())
    if not count:
        return ""
    if (np.abs(expected[lost]) >= FLOAT16_MAX).all():
        return f"all that is beyond {FLOAT16_MAX:g} is lost: float16 overflows"
    where = np.argwhere(lost)[0].tolist()
    values = "value is" if count == 1 else "values are"
    return f"{count:,} {values} NaN or infinite where PyTorch's are not, {where} first"


def _nothing(e: Seen) -> str:
    if not e.actual.any():
        return "every value is 0: nothing was written, or nothing was read"
    return ""


def _moved(e: Seen) -> str:
    """Items, axes or elements in another place."""
    if rms(e.error) < _TENTH * rms(e.expected):  # a move changes much
        return ""
    for words, moved, at in _moves(e.expected):
        if e.same(e.actual[at], moved[at]):
            return words
    if e.expected.size <= _SORTED:
        ours, theirs = np.sort(e.actual, axis=None), np.sort(e.expected, axis=None)
        if e.same(ours, theirs):
            return "the values are right and in other places: a layout or an order"
    return ""


def _moves(expected: np.ndarray) -> Iterator[tuple[str, np.ndarray, Index]]:
    """Yield what may have moved, in words and done, and where to look at it."""
    whole: Index = (slice(None),) * expected.ndim
    if expected.ndim and len(expected) > 1:
        yield "batch items are in another order", expected[::-1], whole
        first = np.broadcast_to(expected[:1], expected.shape)
        yield "every batch item is batch item 0", first, whole
    for axis in range(1, expected.ndim):
        yield f"axis {axis} is reversed", np.flip(expected, axis), whole
        for step, kept in ((1, slice(1, None)), (-1, slice(None, -1))):
            if expected.shape[axis] > 1:
                at = (*whole[:axis], kept, *whole[axis + 1 :])
                words = f"everything is shifted by one along axis {axis}"
                yield words, np.roll(expected, step, axis), at
    for one, two in combinations(range(expected.ndim), 2):
        if expected.shape[one] == expected.shape[two] > 1:
            words = f"axes {one} and {two} are exchanged: a transposition"
            yield words, expected.swapaxes(one, two), whole


def _near(e: Seen) -> str:
    """Another value in the place of this one, or one that it should hold and lacks."""
    for name, other in e.others():
        if e.same(e.actual, other):
            words = f"it is {name}: the operator changed nothing, or another was read"
            return "; ".join(filter(None, (words, _factor(e))))
        if e.same(e.actual, e.expected - other):
            return f"{name} is missing from it"
        if e.same(e.actual, e.expected + other):
            return f"{name} is in it once too often"
    return ""


def _activation(e: Seen) -> str:
    """An activation in the place of another, of what went into it."""
    for name, other in e.others():
        for activation, of in ACTIVATIONS.items():
            if e.same(e.actual, of(other)):
                return f"it is {activation} of {name}: another activation"
    return ""


def _items(e: Seen) -> str:
    """Some items of the batch right, others not."""
    if e.expected.ndim < 2 or len(e.expected) < 2:  # noqa: PLR2004  # an item and its axes
        return ""
    right = rms_along(e.error, 0) <= e.right
    if not right.any() or right.all():
        return ""
    wrong = np.flatnonzero(~right).tolist()
    if right[0] and not right[1:].any():
        rest = "the other is" if len(wrong) == 1 else f"the other {len(wrong)} are"
        return f"batch item 0 is right and {rest} not: one item is read for all"
    return f"batch items {wrong} alone are off"


def _channels(e: Seen) -> str:
    """Some channels right, others not."""
    if e.expected.ndim < 2:  # noqa: PLR2004  # one channel a place
        return ""
    axis = 1 if e.expected.ndim > _AXES else e.expected.ndim - 1
    parts = rms_along(e.error, axis)
    wrong = np.flatnonzero(parts > e.right)
    count = len(parts)
    if not 0 < len(wrong) <= count // 2:
        return ""
    which = f"of {count} on axis {axis}"
    if len(wrong) == 1:
        part = np.take(e.actual, wrong[0], axis)
        what = "is 0" if not part.any() else "is off"
        return f"channel {wrong[0]} {which} alone {what}"
    steps = np.diff(wrong)
    if (steps == 4).all():  # noqa: PLR2004  # MNN packs four
        return f"every fourth channel {which} is off: a layout of four is misread"
    if (steps == 1).all():
        return f"channels {wrong[0]} to {wrong[-1]} {which} alone are off"
    return ""


def _few_elements(e: Seen) -> str:
    wrong = np.abs(e.error) > max(e.right, _SMALL * float(np.abs(e.error).max()))
    count = int(wrong.sum())
    most = max(1, round(_FEW * e.error.size))
    if not 0 < count <= most or e.error.size < _ENDS:
        return ""
    where = np.argwhere(wrong)[0].tolist()
    if count == 1:
        return f"one element of {e.error.size:,} is off, at {where}"
    return f"{count:,} elements of {e.error.size:,} alone are off, {where} first"


def _clipped(e: Seen) -> str:
    low, high = float(e.actual.min()), float(e.actual.max())
    cut = (e.actual == low) | (e.actual == high)
    wrong = np.abs(e.error) > e.right
    # A value at an end once is an extreme; at it again and again it was put there.
    if wrong.sum() > _ENDS and (wrong <= cut).all():
        return f"values are cut off at {low:.4g} and {high:.4g}"
    return ""


def _beyond(e: Seen) -> str:
    wrong = np.abs(e.error) > e.right
    large = np.abs(e.expected) >= FLOAT16_WHOLE
    if (
        wrong.any()
        and (wrong <= large).all()
        and (large & wrong).sum() >= _HALF * large.sum()
    ):
        return f"only values beyond {FLOAT16_WHOLE:g} are off, as float16 rounds them"
    return ""


def _half_precision(e: Seen) -> str:
    """Values that a narrower type holds exactly, and the reference's does not."""
    with np.errstate(over="ignore"):
        halved = e.expected.astype(np.float16).astype(np.float64)
    if (e.actual == halved).all():
        return "every value is PyTorch's, rounded to float16"
    if (e.actual == to_bfloat16(e.expected)).all():
        return "every value is PyTorch's, rounded to bfloat16, which has 8 bits"
    some = e.actual.ravel()[:_LOOKED_AT]
    if not e.whole and np.unique(some).size < _TENTH * some.size:
        return ""  # a mask's few values tell nothing
    actual, expected = e.actual.astype(np.float32), e.expected.astype(np.float32)
    if has_bits(actual, 7) and not has_bits(expected, 7):
        return "every value has 8 bits: it was rounded to bfloat16"
    if has_bits(actual, 10) and not has_bits(expected, 10):
        return "every value has 11 bits: it was rounded to float16 or TensorFloat-32"
    return ""


def _gelu(e: Seen) -> str:
    """Another form of GELU, whose argument is not at hand."""
    return gelu_form(e.expected, e.error) if "gelu" in e.op else ""


def _factor(e: Seen) -> str:
    """Everything times one number, or each part times its own."""
    scale, rest = fit(e.expected.reshape(1, -1), e.actual.reshape(1, -1))
    # Of what is nearly 0 any factor fits.
    most = _TENTH * min(rms(e.error), rms(e.actual)) / (rms(e.expected) or 1.0)
    if rest[0] <= most and abs(scale[0] - 1) > _SMALL:
        return f"everything is {scale[0]:.4g} times what it should be"
    return ""


def _offset(e: Seen) -> str:
    mean = float(e.error.mean())
    if rms(e.error - mean) <= max(e.right, _SMALL * abs(mean)):
        return f"everything is {mean:+.4g} off by the same amount"
    for axis in channel_axes(e.expected):
        others = tuple(a for a in range(e.expected.ndim) if a != axis)
        means = e.error.mean(axis=others, keepdims=True)
        if e.error.size < _ENDS * means.size:  # too few to tell a constant by
            continue
        if rms(e.error - means) <= max(e.right, _SMALL * rms(e.error)):
            return f"each channel of axis {axis} is off by its own amount: a bias"
    return ""


def _parts_scaled(e: Seen) -> str:
    """Each item, or each group of a normalisation, times a number of its own."""
    norm = "norm" in e.op
    for groups in (
        e.expected.shape[:1],
        e.expected.shape[:-1],
        groups_of_32(e.expected),
    ):
        count = math.prod(groups)
        if not 1 < count < e.expected.size:
            continue
        rows = e.expected.reshape(count, -1)
        rows = rows - rows.mean(axis=1, keepdims=True)
        scale, rest = fit(rows, centred(e.actual, count))
        left = math.sqrt(float(np.mean(rest**2 * np.mean(rows**2, axis=1))))
        # The scale and the bias behind a normalisation blur its factors.
        if left <= (_TENTH if norm else _FEW) * rms(e.error) and np.ptp(scale) > _FEW:
            low, high = scale.min(), scale.max()
            words = (
                f"each of {count} parts is scaled by its own factor, "
                f"{low:.3g} to {high:.3g}"
            )
            return (
                f"{words}: a normalisation's epsilon, groups or variance"
                if norm
                else words
            )
    return ""


def _sums(e: Seen) -> str:
    if "softmax" not in e.op:
        return ""
    totals = e.actual.sum(axis=-1)
    if np.abs(totals - 1).max() > _FEW:
        return "softmax does not add up to 1 along the last axis: another axis"
    return "softmax that adds up to 1: its argument was scaled or masked otherwise"


def _rounding(e: Seen) -> str:
    """An error like noise, everywhere alike."""
    if e.whole:  # ids are not rounded
        return ""
    noise, size = rms(e.error), rms(e.expected)
    spread = float(np.abs(e.error).max()) / noise
    if not size or noise >= _NOISE * size or spread > 30:  # noqa: PLR2004  # of a normal's, 5 to 6
        return ""
    share = f"{NOISE}, {noise / size:.1e} of the values"
    floors = noise / e.floor if e.floor else math.inf
    # Of a convolution whose weights are known to be right nothing but tiles is left.
    tiled = e.it is not None and weights_fit(e.it, e.expected, noise)
    if floors <= (_TILED if tiled else _SUMMED):
        return f"{share}: rounding, not a rule"
    if e.op == "output":  # which operator it comes from, its layers tell
        return f"{share}: more than float32 rounds"
    # What an operator was given may be off by as much as the tiles before it round.
    if floors <= _TILED and ("conv" in e.op or e.it is None):
        return f"{share}: rounding by Winograd's tiles, or other weights"
    return f"{share}: more than float32 rounds, so fewer bits or other weights"


_RULES: tuple[Callable[[Seen], str], ...] = (
    _nothing,
    mask,
    other_form,
    _near,
    _activation,
    halves,
    _moved,
    constant,
    _half_precision,
    _few_elements,
    _items,
    _gelu,
    _channels,
    border,
    dropped,
    _parts_scaled,
    _factor,
    _offset,
    channels_scaled,
    other_weights,
    _clipped,
    _beyond,
    _sums,
    _rounding,
)
