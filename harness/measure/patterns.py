"""Rules about masks, constants, halves, borders, random zeros and channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.measure.activations import ACTIVATIONS
from harness.measure.forms import forms
from harness.measure.operation import Operation
from harness.measure.residuals import channel_axes, channel_fit, rms, to_bfloat16
from harness.measure.seen import Seen
from harness.measure.weighted_forms import UNLESS

_MASKED = -1e3
"""No score is so low; places of less are masked."""

_TENTH, _FEW = 0.1, 0.01
_MOVES = ("expand", "view", "reshape", "unsqueeze", "alias", "clone")
"""Operators that hand on what they are given."""

_PICTURE_AXES = 4
_MOST_ZEROS = 0.6
_BORDER = 3
_OWN = 4
"""Values that a channel has at least, where a factor and an offset are read off it."""


def other_form(e: Seen) -> str:
    """The operator in another form, computed from what PyTorch's was given."""
    return _form(e, lambda words: not words.startswith(UNLESS))


def other_weights(e: Seen) -> str:
    """The operator with other weights, where no rule knows more about them."""
    return _form(e, lambda words: words.startswith(UNLESS))


def _form(e: Seen, wanted: Callable[[str], bool]) -> str:
    if e.it is None or e.whole:
        return ""
    with np.errstate(all="ignore"):
        for words, made in forms(e.it, e.expected, e.actual):
            if not wanted(words):
                continue
            fits = made.shape == e.actual.shape and np.isfinite(made).all()
            if fits and e.same(e.actual, made):
                return words
    return ""


def mask(e: Seen) -> str:
    """Places that PyTorch takes away from a softmax, and the candidate otherwise."""
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
    """Say along which axis a mask is moved by one; empty if along none."""
    for axis in range(theirs.ndim):
        # A roll by one brings a value from the other end.
        inner = slice(1, -1) if theirs.shape[axis] > 2 else slice(None)  # noqa: PLR2004
        at = (*(slice(None),) * axis, inner)
        for step in (1, -1):
            if (np.roll(theirs, step, axis) == ours)[at].all():
                return f"the mask is shifted by one along axis {axis}"
    return ""


def truth(theirs: np.ndarray, ours: np.ndarray, it: Operation | None) -> str:
    """Booleans that are others; empty where nothing known made them so."""
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
    """One value everywhere, where PyTorch's follow the input."""
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
                return ""  # that is the input with fewer bits
        return f"it is {held:.6g} where the input is {due:.6g}: a constant in its place"
    return ""


def halves(e: Seen) -> str:
    """The other half of a value that is split in two."""
    for name, value in e.near.items():
        for axis in range(min(value.ndim, e.expected.ndim)):
            wanted = list(e.expected.shape)
            wanted[axis] *= 2
            if value.dtype.kind != "f" or list(value.shape) != wanted:
                continue
            one, two = np.split(value.astype(np.float64), 2, axis)
            for of in (lambda x: x, *ACTIVATIONS.values()):
                for right, wrong in ((one, two), (two, one)):
                    if e.same(e.actual, of(wrong)) and _near(e, of(right)):
                        half = f"it is made of the other half of {name}"
                        return f"{half}: the halves are exchanged"
    return ""


def _near(e: Seen, made: np.ndarray) -> bool:
    return rms(made - e.expected) <= _FEW * rms(e.error)


def border(e: Seen) -> str:
    """The rim of a picture alone, where padding is read."""
    if e.expected.ndim != _PICTURE_AXES or min(e.expected.shape[2:]) <= 2 * _BORDER:
        return ""
    for width in range(1, _BORDER + 1):
        inside = e.error[:, :, width:-width, width:-width]
        if rms(inside) <= max(e.right, 1e-3 * rms(e.error)):
            words = f"only a border of {width} is off"
            return f"{words}: padding with other values, or on another side"
    return ""


def dropped(e: Seen) -> str:
    """Random zeros, the rest scaled so that the mean stays."""
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
    """Each channel with a factor and an offset of its own."""
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
