"""What an error looks like: rules over two arrays, each with its usual cause.

The most specific rule comes first. If no rule fits, there is no message. Each rule
comes from a bug that users met; docs/signatures.md says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations, permutations

import numpy as np

from harness.core.comparison import Comparison
from harness.measure.error_patterns.arithmetic import (
    ACTIVATIONS,
    centred,
    channel_axes,
    channel_fit,
    fit,
    gelu_form,
    groups_of_32,
    has_bits,
    rms,
    rms_along,
    to_bfloat16,
)
from harness.measure.error_patterns.forms import forms
from harness.measure.error_patterns.observed import NOISE, RIGHT, Operation, Seen
from harness.measure.error_patterns.weighted_forms import UNLESS, weights_fit

FLOAT16_MAX = 65504.0
FLOAT16_WHOLE = 2048.0
"""Magnitude above which float16 can hold no odd number."""

_SMALL = 1e-3

_FEW = 0.01
_TENTH = 0.1
_HALF = 0.5
_ENDS = 4
_LOOKED_AT = 4096
_SUMMED, _TILED = 64.0, 1100.0
"""Largest numbers of noise floors that rounding in float32 causes: with another order
of summation, and in a convolution with Winograd's large tiles. Measured: 7.8 in the
full-size networks without such tiles; with them 58.5 in the decoder of digits, 299 in
SDXL's UNet, 1,058 in Stable Diffusion 1.5's (README, fixtures/*/tolerances.toml)."""

_NOISE = 0.3
"""Share of a value above which an error means another value. Rounding to four bits
leaves a tenth."""

_SORTED = 2**20
"""Number of elements above which a search for moved elements takes too long."""

_AXES = 3
Index = tuple[slice, ...]

_MASKED = -1e3
"""Scores below this number count as masked; no real score is so low."""

_MOVES = ("expand", "view", "reshape", "unsqueeze", "alias", "clone")
"""Operators that pass their input on."""

_PICTURE_AXES = 4
_NHWC = (0, 2, 3, 1)
_MOST_ZEROS = 0.6
_BORDER = 3
_OWN = 4
"""Smallest number of values of a channel from which a factor and an offset are
fitted."""


def beyond_noise(found: Comparison) -> bool:
    """Whether an error is large enough to look for a pattern, or a shape is another."""
    other_shape = found.expected_shape != found.actual_shape
    if found.nonfinite_mismatched or found.floor_multiple is None:
        return bool(other_shape or found.nonfinite_mismatched or found.max_abs)
    return other_shape or found.floor_multiple > RIGHT


def error_pattern(
    expected: np.ndarray,
    actual: np.ndarray,
    floor_rms: float | None,
    op: str,
    near: Mapping[str, np.ndarray] | None = None,
    *,
    it: Operation | None = None,
) -> str:
    """Return a message about what an error looks like; empty if no rule fits.

    Args:
        expected: Value of the reference.
        actual: Value of the candidate; of another shape, only its layout is looked at.
        floor_rms: Noise floor of the value, in its own unit; None if it is not known.
        op: PyTorch operator that computed the value.
        near: Other values of the reference, by name: the operator's inputs, or the
            other outputs. One of them may be in place of this value, or missing from
            it.
        it: Operator with its inputs, from which other forms are computed; None if they
            are not available.

    """
    kinds = {expected.dtype.kind, actual.dtype.kind}
    if expected.shape != actual.shape or not expected.size:
        return _layout(expected, actual)
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


def _layout(expected: np.ndarray, actual: np.ndarray) -> str:
    """Detect PyTorch's value with its axes in another order."""
    if sorted(expected.shape) != sorted(actual.shape) or not expected.size:
        return ""
    scale = rms(expected.astype(np.float64))
    for order in permutations(range(expected.ndim)):
        turned = expected.transpose(order)
        if turned.shape == actual.shape:
            error = rms(actual.astype(np.float64) - turned)
            if error < _TENTH * scale:
                said = ", ".join(map(str, order))
                named = f"axes {said} of PyTorch's value"
                nhwc = ": NHWC in place of NCHW" if order == _NHWC else ""
                return f"its axes are {named}{nhwc}"
    return ""


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


def _unwritten(e: Seen) -> str:
    """Detect a value of which only the first elements were written."""
    wrong = np.abs(e.error.reshape(-1)) > max(e.right, _TENTH * rms(e.error))
    first, size = int(wrong.argmax()), wrong.size
    rest = e.actual.reshape(-1)[first:]
    if not _ENDS < first < size - _ENDS or rest.any():
        return ""
    return (
        f"right up to element {first:,} of {size:,}, and 0 from there: it was read "
        "before all of it was written"
    )


def _moved(e: Seen) -> str:
    """Detect items, axes or elements in another place."""
    if rms(e.error) < _TENTH * rms(e.expected):  # a move would change more
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
    """Yield a message, the array with that move, and the part to compare."""
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
    """Detect another value in place of this one, or a missing or doubled term."""
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
    """Detect another activation of the same input."""
    for name, other in e.others():
        for activation, of in ACTIVATIONS.items():
            if e.maps(of, other, e.actual):
                return f"it is {activation} of {name}: another activation"
    return ""


def _items(e: Seen) -> str:
    """Detect that only some items of the batch are right."""
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
    """Detect that only some channels are right."""
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
    # One value at an end is an extreme. Many values at an end were cut off there.
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
    """Detect values that only a narrower type would hold exactly."""
    with np.errstate(over="ignore"):
        halved = e.expected.astype(np.float16).astype(np.float64)
    if (e.actual == halved).all():
        return "every value is PyTorch's, rounded to float16"
    if (e.actual == to_bfloat16(e.expected)).all():
        return "every value is PyTorch's, rounded to bfloat16, which has 8 bits"
    some = e.actual.ravel()[:_LOOKED_AT]
    if not e.whole and np.unique(some).size < _TENTH * some.size:
        return ""  # a mask has too few different values
    actual, expected = e.actual.astype(np.float32), e.expected.astype(np.float32)
    if has_bits(actual, 7) and not has_bits(expected, 7):
        return "every value has 8 bits: it was rounded to bfloat16"
    if has_bits(actual, 10) and not has_bits(expected, 10):
        return "every value has 11 bits: it was rounded to float16 or TensorFloat-32"
    return ""


def _gelu(e: Seen) -> str:
    """Detect another form of GELU, without its argument."""
    return gelu_form(e.expected, e.error) if "gelu" in e.op else ""


def _factor(e: Seen) -> str:
    """Detect one factor for all values, or one for each part."""
    scale, rest = fit(e.expected.reshape(1, -1), e.actual.reshape(1, -1))
    # Any factor fits a value that is nearly 0.
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
        if e.error.size < _ENDS * means.size:  # too few values to detect a constant
            continue
        if rms(e.error - means) <= max(e.right, _SMALL * rms(e.error)):
            return f"each channel of axis {axis} is off by its own amount: a bias"
    return ""


def _parts_scaled(e: Seen) -> str:
    """Detect a factor for each item, or for each group of a normalisation."""
    norm = "norm" in e.op
    for groups in (
        e.expected.shape[:1],
        e.expected.shape[:-1],
        groups_of_32(e.expected),
    ):
        count = math.prod(groups)
        if not 1 < count < e.expected.size:
            continue
        rows = centred(e.expected, count)
        scale, rest = fit(rows, centred(e.actual, count))
        left = math.sqrt(float(np.mean(rest**2 * np.mean(rows**2, axis=1))))
        # The scale and the bias after a normalisation make its factors less exact.
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
    """Detect an error that is like noise and the same everywhere."""
    if e.whole:  # whole numbers are not rounded
        return ""
    noise, size = rms(e.error), rms(e.expected)
    spread = float(np.abs(e.error).max()) / noise
    if not size or noise >= _NOISE * size or spread > 30:  # noqa: PLR2004  # of a normal's, 5 to 6
        return ""
    share = f"{NOISE}, {noise / size:.1e} of the values"
    floors = noise / e.floor if e.floor else math.inf
    # If a convolution's weights are known to be right, only tiles remain as a cause.
    tiled = e.it is not None and weights_fit(e.it, e.expected, noise)
    if floors <= (_TILED if tiled else _SUMMED):
        return f"{share}: rounding, not a rule"
    if e.op == "output":  # the layers show which operator causes it
        return f"{share}: more than float32 rounds"
    # An operator's input may be off by the rounding of earlier tiles.
    if floors <= _TILED and ("conv" in e.op or e.it is None):
        return f"{share}: rounding by Winograd's tiles, or other weights"
    return f"{share}: more than float32 rounds, so fewer bits or other weights"


def other_form(e: Seen) -> str:
    """Detect the operator in another form, computed from PyTorch's own inputs."""
    return _form(e, lambda words: not words.startswith(UNLESS))


def other_weights(e: Seen) -> str:
    """Detect the operator with other weights, if no more specific rule fits."""
    return _form(e, lambda words: words.startswith(UNLESS))


_NOT_COMPUTED = (ValueError, LookupError, ZeroDivisionError, np.linalg.LinAlgError)


def _form(e: Seen, wanted: Callable[[str], bool]) -> str:
    if e.it is None or e.whole:
        return ""
    # A form that cannot be computed from these operands describes nothing, and a
    # description must not end a case.
    with np.errstate(all="ignore"), suppress(*_NOT_COMPUTED):
        for words, made in forms(e.it, e.expected, e.actual):
            if not wanted(words):
                continue
            fits = made.shape == e.actual.shape and np.isfinite(made).all()
            if fits and e.same(e.actual, made):
                return words
    return ""


def mask(e: Seen) -> str:
    """Detect that the candidate masks other places of a softmax than PyTorch does."""
    low, taken = e.expected < _MASKED, e.actual < _MASKED
    if e.whole or not low.any() or low.all():
        return ""
    if any(rms(e.actual - v) <= 1e-4 * rms(v) for _, v in e.others()):
        return "the mask is missing: nothing is taken away"
    if taken.any() and (low != taken).any():
        return shifted(low, taken) or (
            f"the mask takes away {taken.sum():,} places, not {low.sum():,}"
        )
    if np.abs(e.error[~low]).max() > max(e.right, _FEW):
        return ""
    held, deep = float(np.median(e.actual[low])), float(np.median(e.expected[low]))
    what = "another mask" if taken.any() else "the mask is too weak, or missing"
    return f"masked places hold {held:.4g}, not {deep:.4g} or less: {what}"


def shifted(theirs: np.ndarray, ours: np.ndarray) -> str:
    """Return a message about the axis along which a mask is shifted by one, or ""."""
    for axis in range(theirs.ndim):
        # A roll by one moves a value in from the other end, so the ends are left out.
        inner = slice(1, -1) if theirs.shape[axis] > 2 else slice(None)  # noqa: PLR2004
        at = (*(slice(None),) * axis, inner)
        for step in (1, -1):
            if (np.roll(theirs, step, axis) == ours)[at].all():
                return f"the mask is shifted by one along axis {axis}"
    return ""


def truth(theirs: np.ndarray, ours: np.ndarray, it: Operation | None) -> str:
    """Return a message about booleans that differ; empty if no rule fits."""
    if (ours == theirs).all():
        return ""
    x = it.tensor("self") if it is not None and it.op == "eq" else None
    if x is not None and x.shape == ours.shape:
        held, due = np.unique(x[ours]).tolist(), np.unique(x[theirs]).tolist()
        if len(due) == 1 and len(held) < 2:  # noqa: PLR2004  # one, or true nowhere
            other = held[0] if held else "what no value is"
            return f"it compares with {other}, not with {due[0]}"
    if (ours == ~theirs).all():
        return "true and false are exchanged: the mask is inverted"
    return shifted(theirs, ours)


def constant(e: Seen) -> str:
    """Detect a constant in place of a value that depends on the input."""
    if e.actual.size > 1 and np.ptp(e.actual) == 0:
        held = float(e.actual.flat[0])
        return (
            f"every value is {held:.6g}, whatever the input is: a constant in its place"
        )
    name = e.op.removeprefix("aten.").partition(".")[0]
    if e.actual.size == 1 and name in _MOVES and not e.near:
        held, due = float(e.actual.item()), float(e.expected.item())
        with np.errstate(over="ignore"):
            if held in {float(np.float16(due)), float(to_bfloat16(e.expected).item())}:
                return ""  # it is the input with fewer bits
        return f"it is {held:.6g} where the input is {due:.6g}: a constant in its place"
    return ""


def halves(e: Seen) -> str:
    """Detect that the other half of a split value was used."""
    for name, value in e.near.items():
        for axis in range(min(value.ndim, e.expected.ndim)):
            wanted = list(e.expected.shape)
            wanted[axis] *= 2
            if value.dtype.kind != "f" or list(value.shape) != wanted:
                continue
            one, two = np.split(value.astype(np.float64), 2, axis)
            for of in (lambda x: x, *ACTIVATIONS.values()):
                for right, wrong in ((one, two), (two, one)):
                    if e.maps(of, wrong, e.actual) and _explains(e, of(right)):
                        half = f"it is made of the other half of {name}"
                        return f"{half}: the halves are exchanged"
    return ""


def _explains(e: Seen, made: np.ndarray) -> bool:
    return rms(made - e.expected) <= _FEW * rms(e.error)


def border(e: Seen) -> str:
    """Detect an error only at the border of a picture, where padding is read."""
    if e.expected.ndim != _PICTURE_AXES or min(e.expected.shape[2:]) <= 2 * _BORDER:
        return ""
    for width in range(1, _BORDER + 1):
        inside = e.error[:, :, width:-width, width:-width]
        if rms(inside) <= max(e.right, 1e-3 * rms(e.error)):
            words = f"only a border of {width} is off"
            return f"{words}: padding with other values, or on another side"
    return ""


def dropped(e: Seen) -> str:
    """Detect random zeros, with the other values scaled to keep the mean."""
    lost = (e.actual == 0) & (e.expected != 0)
    share = float(lost.mean())
    if not _FEW < share < _MOST_ZEROS:
        return ""
    kept = e.actual[~lost], e.expected[~lost]
    power = float(np.sum(kept[1] ** 2))
    factor = float(np.sum(kept[0] * kept[1])) / power if power else 0.0
    if rms(kept[0] - factor * kept[1]) > max(e.right, 1e-5 * rms(kept[0])):
        return ""
    if abs(factor * (1 - share) - 1) > _TENTH:
        return ""
    words = f"{share:.0%} of the values are 0 and the rest {factor:.4g} times"
    return f"{words}: Dropout is left in"


def channels_scaled(e: Seen) -> str:
    """Detect a factor and an offset for each channel."""
    for axis in channel_axes(e.expected):
        count = e.expected.shape[axis]
        if count < 2 or e.expected.size < _OWN * count:  # noqa: PLR2004  # channels
            continue
        factor, offset = channel_fit(e.expected, e.actual, axis)
        left = rms(factor * e.expected + offset - e.actual)
        if left > max(e.right, 1e-3 * rms(e.error)) or np.ptp(factor) < _FEW:
            continue
        what = "scaled by its own factor"
        if rms(offset) > _FEW * rms(e.error):
            what += " and shifted by its own amount"
        return f"each channel of axis {axis} is {what}: the scale of a normalisation"
    return ""


_RULES: tuple[Callable[[Seen], str], ...] = (
    _nothing,
    _unwritten,
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
