"""Rules about where an error is: moved, in some items or channels, at a border.

They need no operands. Each claims that the rest of the value is right, so an error
elsewhere must be slight beside the value itself, however large other errors are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from harness.plugins.patterns.arithmetic import rms, rms_along
from harness.plugins.patterns.observed import Seen

FLOAT16_WHOLE = 2048.0
"""Magnitude above which float16 can hold no odd number."""

_FLOAT16 = 2.0**-10
"""Largest relative error of a number that passes through float16, with some slack."""

_SMALL = 1e-3
_FEW = 0.01
_TENTH = 0.1
_HALF = 0.5
_ENDS = 4
_SORTED = 2**20
"""Number of elements above which a search for moved elements takes too long."""

_PACKED = 4
"""Number of channels that MNN packs together."""

_AXES_OF_1 = "its numbers are PyTorch's, and it differs in axes of 1 alone"
_AXES = 3
Index = tuple[slice, ...]

_PICTURE_AXES = 4
_NHWC = (0, 2, 3, 1)
_MOST_ZEROS = 0.6
_BORDER = 3

_RESIZES = ("resize", "upsample", "interpolate")
_NEIGHBOURS = ("conv", "pool", "pad", "output", "im2col", "unfold", *_RESIZES)
"""Parts of the names of operators that read a place's neighbours."""


def layout(expected: np.ndarray, actual: np.ndarray) -> str:
    """Detect PyTorch's value with its axes in another order, or with more axes of 1."""
    if not expected.size or expected.size != actual.size:
        return ""
    scale = rms(expected.astype(np.float64))
    if expected.ndim != actual.ndim:
        theirs, ours = (one.squeeze().astype(np.float64) for one in (expected, actual))
        same = theirs.shape == ours.shape and rms(ours - theirs) <= _SMALL * scale
        return _AXES_OF_1 if same else ""
    if sorted(expected.shape) != sorted(actual.shape):
        return ""
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


def unwritten(e: Seen) -> str:
    """Detect a value of which only the first elements were written."""
    wrong = np.abs(e.error.reshape(-1)) > max(
        e.right, min(_TENTH * rms(e.error), e.slight)
    )
    first, size = int(wrong.argmax()), wrong.size
    rest = e.actual.reshape(-1)[first:]
    if not _ENDS < first < size - _ENDS or rest.any():
        return ""
    return (
        f"right up to element {first:,} of {size:,}, and 0 from there: it was read "
        "before all of it was written"
    )


def moved(e: Seen) -> str:
    """Detect items, axes or elements in another place."""
    if rms(e.error) < _TENTH * rms(e.expected):  # a move would change more
        return ""
    for words, made, at in _moves(e.expected):
        if e.same(e.actual[at], made[at]):
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


def items(e: Seen) -> str:
    """Detect that only some items of the batch are right."""
    if e.expected.ndim < 2 or len(e.expected) < 2:  # noqa: PLR2004  # an item and its axes
        return ""
    right = rms_along(e.error, 0) <= e.right
    if not right.any() or right.all():
        return ""
    wrong = np.flatnonzero(~right).tolist()
    if right[0] and not right[1:].any():
        rest = "the other is" if len(wrong) == 1 else f"the other {len(wrong)} are"
        return f"batch item 0 is right and {rest} not"
    return f"batch items {wrong} alone are off"


def channels(e: Seen) -> str:
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
    if np.array_equal(wrong, np.arange(wrong[0] % _PACKED, count, _PACKED)):
        return f"every fourth channel {which} is off: a layout of four is misread"
    if (steps == 1).all():
        return f"channels {wrong[0]} to {wrong[-1]} {which} alone are off"
    return ""


def few_elements(e: Seen) -> str:
    """Detect that only a few elements are off."""
    most_off = float(np.abs(e.error).max())
    wrong = np.abs(e.error) > max(e.right, min(_SMALL * most_off, e.slight))
    count = int(wrong.sum())
    most = max(1, round(_FEW * e.error.size))
    if not 0 < count <= most or e.error.size < _ENDS:
        return ""
    where = np.argwhere(wrong)[0].tolist()
    if count == 1:
        return f"one element of {e.error.size:,} is off, at {where}"
    return f"{count:,} elements of {e.error.size:,} alone are off, {where} first"


def clipped(e: Seen) -> str:
    """Detect values that are cut off at an end, and are right elsewhere."""
    low, high = float(e.actual.min()), float(e.actual.max())
    if not e.same(e.actual, np.clip(e.expected, low, high)):
        return ""
    ends = [
        f"{end:.4g}"
        for end, beyond_it in ((low, e.expected < low), (high, e.expected > high))
        # One value at an end is an extreme. Many values at an end were cut off there.
        if (beyond_it & (np.abs(e.error) > e.right)).sum() > _ENDS
    ]
    return f"values are cut off at {' and '.join(ends)}" if ends else ""


def beyond(e: Seen) -> str:
    """Detect that only large values are off, by no more than float16 rounds them."""
    wrong = np.abs(e.error) > e.right
    large = np.abs(e.expected) >= FLOAT16_WHOLE
    if (
        wrong.any()
        and (wrong <= large).all()
        and (large & wrong).sum() >= _HALF * large.sum()
        and (np.abs(e.error[wrong]) <= _FLOAT16 * np.abs(e.expected[wrong])).all()
    ):
        return f"only values beyond {FLOAT16_WHOLE:g} are off, as float16 rounds them"
    return ""


def border(e: Seen) -> str:
    """Detect an error only at the border of a picture, where padding is read."""
    if e.expected.ndim != _PICTURE_AXES or min(e.expected.shape[2:]) <= 2 * _BORDER:
        return ""
    if not any(word in e.name for word in _NEIGHBOURS):  # such as attention's scores
        return ""
    for width in range(1, _BORDER + 1):
        inside = e.error[:, :, width:-width, width:-width]
        right = max(e.right, min(_SMALL * rms(e.error), e.slight))
        ring = e.error.size - inside.size
        if rms(inside) <= right and (np.abs(e.error) > right).sum() > _TENTH * ring:
            words = f"only a border of {width} is off"
            if any(word in e.name for word in _RESIZES):
                return f"{words}: pixels beyond the edge count otherwise in the resize"
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
    rest = rms(kept[0] - factor * kept[1])
    if rest > max(e.right, 1e-5 * rms(kept[0])) or rest > _TENTH * rms(e.error):
        return ""
    if abs(factor * (1 - share) - 1) > _TENTH:
        return ""
    words = f"{share:.0%} of the values are 0 and the rest {factor:.4g} times"
    return f"{words}: Dropout is left in"
