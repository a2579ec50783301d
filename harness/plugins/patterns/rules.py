"""What an error looks like: rules over two arrays, each with its usual cause.

The most specific rule comes first. If no rule fits, there is no message. Each rule
comes from a bug that users met; docs/signatures.md says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np

from harness.measure.bfloat16 import to_bfloat16
from harness.measure.patterns import NOISE
from harness.plugins.patterns.arithmetic import (
    ACTIVATIONS,
    centred,
    channel_axes,
    channel_fit,
    explains,
    fit,
    gelu_form,
    groups_of_32,
    has_bits,
    rms,
)
from harness.plugins.patterns.forms import forms
from harness.plugins.patterns.observed import Operation, Seen
from harness.plugins.patterns.places import (
    beyond,
    border,
    channels,
    clipped,
    dropped,
    few_elements,
    items,
    layout,
    moved,
    unwritten,
)
from harness.plugins.patterns.weighted_forms import UNLESS, weights_fit

FLOAT16_MAX = 65504.0
_SMALL = 1e-3

_FEW = 0.01
_TENTH = 0.1
_ENDS = 4
_LOOKED_AT = 4096
_COARSE = 2.0**-6
"""Largest usual error, as a share of the usual value, that eight bits explain."""

_SUMMED, _TILED = 64.0, 1100.0
"""Largest numbers of noise floors that rounding in float32 causes: with another order
of summation, and in a convolution with Winograd's large tiles. Measured: 7.8 in the
full-size networks without such tiles; with them 58.5 in the decoder of digits, 299 in
SDXL's UNet, 1,058 in Stable Diffusion 1.5's (README, fixtures/*/tolerances.toml)."""

_NOISE = 0.3
"""Share of a value above which an error means another value. Rounding to four bits
leaves a tenth."""

_MASKED = -1e3
"""Scores below this number count as masked; no real score is so low."""

_APART = 2.0
"""Smallest factor between what a mask takes away and the lowest score."""

_MOVES = ("expand", "view", "reshape", "unsqueeze", "alias", "clone")
"""Operators that pass their input on."""

_ROW = 8
"""Smallest number of values of a part from which its own factor is fitted."""

_OWN = 4
"""Smallest number of values of a channel from which a factor and an offset are
fitted."""


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
        return layout(expected, actual)
    if expected.dtype.kind == "b":
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
    if np.array_equal(lost, np.isfinite(expected) & (np.abs(expected) >= FLOAT16_MAX)):
        return f"all that is beyond {FLOAT16_MAX:g} is lost: float16 overflows"
    where = np.argwhere(lost)[0].tolist()
    values = "value is" if count == 1 else "values are"
    return f"{count:,} {values} NaN or infinite where PyTorch's are not, {where} first"


def _nothing(e: Seen) -> str:
    if not e.actual.any():
        return "every value is 0: nothing was written, or nothing was read"
    return ""


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


def _half_precision(e: Seen) -> str:
    """Detect values that only a narrower type would hold exactly."""
    with np.errstate(over="ignore"):
        halved = e.expected.astype(np.float16).astype(np.float64)
    if (e.actual == halved).all():
        return "every value is PyTorch's, rounded to float16"
    if (e.actual == to_bfloat16(e.expected)).all():
        return "every value is PyTorch's, rounded to bfloat16, which has 8 bits"
    some = e.actual.ravel()[:_LOOKED_AT]
    few = not e.whole and np.unique(some).size < _TENTH * some.size
    if few or not _may_be_rounded(e):  # a mask has too few different values
        return ""
    actual, expected = e.actual.astype(np.float32), e.expected.astype(np.float32)
    if has_bits(actual, 7) and not has_bits(expected, 7):
        return "every value has 8 bits: it was rounded to bfloat16"
    if has_bits(actual, 10) and not has_bits(expected, 10):
        return "every value has 11 bits: it was rounded to float16 or TensorFloat-32"
    return ""


def _may_be_rounded(e: Seen) -> bool:
    """Whether rounding to eight bits is not the smaller part of the usual error."""
    held = e.expected != 0
    if not held.any():
        return False
    apart, usual = (np.median(np.abs(v[held])) for v in (e.error, e.expected))
    return bool(apart <= _COARSE * usual)


def _gelu(e: Seen) -> str:
    """Detect another form of GELU, without its argument."""
    return gelu_form(e.expected, e.error) if "gelu" in e.name else ""


def _factor(e: Seen) -> str:
    """Detect one factor for all values."""
    scale, _ = fit(e.expected.reshape(1, -1), e.actual.reshape(1, -1))
    made = scale[0] * e.expected
    # Any factor fits a value that is nearly 0.
    small = rms(e.actual - made) <= _TENTH * rms(e.actual)
    if small and abs(scale[0] - 1) > _SMALL and e.explained_by(made, _TENTH):
        return f"everything is {scale[0]:.4g} times what it should be"
    return ""


def _factor_and_offset(e: Seen) -> str:
    """Detect one factor and one offset for all values."""
    mean = float(e.expected.mean())
    spread = e.expected - mean
    power = float(np.sum(spread * spread))
    if e.expected.size < _OWN**2 or not power:
        return ""
    factor = float(np.sum(spread * e.actual)) / power
    offset = float(e.actual.mean()) - factor * mean
    made = factor * e.expected + offset
    small = rms(e.actual - made) <= _TENTH * rms(e.actual - e.actual.mean())
    if not small or abs(factor - 1) <= _SMALL or not e.explained_by(made):
        return ""
    return f"everything is {factor:.4g} times what it should be, and {offset:+.4g} off"


def _input_factor(e: Seen) -> str:
    """Detect a factor on the input of an operator that is linear but for its bias."""
    if not any(part in e.name for part in ("linear", "conv", "addmm")):
        return ""
    for axis in channel_axes(e.expected):
        rest = tuple(a for a in range(e.expected.ndim) if a != axis)
        count = e.expected.shape[axis]
        if e.expected.size < _ROW * count or count < 2:  # noqa: PLR2004  # one bias each
            continue
        inside, there = (
            v - v.mean(axis=rest, keepdims=True) for v in (e.expected, e.actual)
        )
        power = float(np.sum(inside * inside))
        factor = float(np.sum(inside * there)) / power if power else 0.0
        means = (e.actual - factor * e.expected).mean(axis=rest, keepdims=True)
        made = factor * e.expected + means
        if abs(factor) > _SMALL and abs(factor - 1) > _FEW and e.explained_by(made):
            return (
                f"each channel is {factor:.5g} times what it should be but for an "
                "amount of its own, a bias: a factor on its input or its weight"
            )
    return ""


def _offset(e: Seen) -> str:
    mean = float(e.error.mean())
    if e.explained_by(e.expected + mean, _SMALL):
        return f"everything is {mean:+.4g} off by the same amount"
    for axis in channel_axes(e.expected):
        others = tuple(a for a in range(e.expected.ndim) if a != axis)
        means = e.error.mean(axis=others, keepdims=True)
        if e.error.size < _ENDS * means.size:  # too few values to detect a constant
            continue
        inside = e.expected - e.expected.mean(axis=others, keepdims=True)
        if rms(inside) <= _FEW * rms(e.expected):  # a factor looks the same there
            continue
        if e.explained_by(e.expected + means, _SMALL):
            return f"each channel of axis {axis} is off by its own amount: a bias"
    return ""


def _parts_scaled(e: Seen) -> str:
    """Detect a factor for each item, or for each group of a normalisation."""
    norm = "norm" in e.name
    for groups in (
        e.expected.shape[:1],
        e.expected.shape[:-1],
        groups_of_32(e.expected),
    ):
        count = math.prod(groups)
        # A factor fits any row of two values, and most rows of few.
        if not 1 < count <= e.expected.size // _ROW:
            continue
        rows, theirs = centred(e.expected, count), centred(e.actual, count)
        scale, _ = fit(rows, theirs)
        left = theirs - scale[:, None] * rows
        # The scale and the bias after a normalisation make its factors less exact.
        share = _TENTH if norm else _FEW
        error = e.error.reshape(count, -1)
        if np.ptp(scale) > _FEW and explains(left, error, share, e.right):
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
    if "softmax" not in e.name or "log" in e.name:
        return ""
    if _adds_up(e.actual, -1):
        return "softmax that adds up to 1: of another argument"
    words = "softmax does not add up to 1 along the last axis"
    other = any(_adds_up(e.actual, axis) for axis in range(e.actual.ndim - 1))
    return f"{words}: another axis" if other else words


def _adds_up(values: np.ndarray, axis: int) -> bool:
    return bool(np.abs(values.sum(axis=axis) - 1).max() <= _FEW)


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
    # An operator's input may be off by the rounding of earlier tiles. Of outputs, the
    # layers show where the error is.
    after_tiles = e.it is None and e.name != "output"
    if floors <= _TILED and ("conv" in e.name or after_tiles):
        return (
            f"{share}: more than float32 rounds, and no more than Winograd's tiles do"
        )
    return f"{share}: more than float32 rounds"


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
    kept, of_one_kind = ~(low | taken), e.expected[low].max() / _APART
    apart = np.abs(e.error[kept]).max(initial=0.0) <= max(e.right, _FEW)
    if not apart or e.expected[~low].min() < of_one_kind:
        return ""
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
    if ours.dtype.kind in "iu":  # a runtime without booleans, whose truth is 0 or 1
        wild = ours[(ours != 0) & (ours != 1)]
        number = f"{wild.size:,} of {ours.size:,} values that are true or false"
        return f"{number} are neither 0 nor 1, such as {wild[0]}" if wild.size else ""
    if ours.dtype.kind != "b" or (ours == theirs).all():
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


def channels_scaled(e: Seen) -> str:
    """Detect a factor and an offset for each channel."""
    for axis in channel_axes(e.expected):
        count = e.expected.shape[axis]
        if count < 2 or e.expected.size < _OWN * count:  # noqa: PLR2004  # channels
            continue
        factor, offset = channel_fit(e.expected, e.actual, axis)
        if np.ptp(factor) < _FEW or not e.explained_by(
            factor * e.expected + offset, _SMALL
        ):
            continue
        what = "scaled by its own factor"
        if rms(offset) > _FEW * rms(e.error):
            what += " and shifted by its own amount"
        words = f"each channel of axis {axis} is {what}"
        return f"{words}: the scale of a normalisation" if "norm" in e.name else words
    return ""


_RULES: tuple[Callable[[Seen], str], ...] = (
    _nothing,
    unwritten,
    mask,
    other_form,
    _near,
    _activation,
    halves,
    moved,
    constant,
    _half_precision,
    few_elements,
    items,
    _gelu,
    channels,
    border,
    dropped,
    _parts_scaled,
    _factor,
    _offset,
    _factor_and_offset,
    _input_factor,
    channels_scaled,
    other_weights,
    clipped,
    beyond,
    _sums,
    _rounding,
)
