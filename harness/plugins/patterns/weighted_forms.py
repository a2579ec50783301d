"""Other forms of operators with weights: with the weight turned or other padding.

The weight is that of the deployed graph. If it gives the candidate's value and not
PyTorch's, the graph's weight itself differs. The rules then look for the turn that
gives PyTorch's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.measure.patterns import FEWER_BITS, NOT_THE_GRAPHS
from harness.plugins.patterns.arithmetic import has_bits, rms
from harness.plugins.patterns.observed import MOST, Form, Operation

_FIFTH, _TENTH, _HUNDREDTH = 0.2, 0.1, 0.01
_KERNEL_AXES = 4
_ENOUGH = 1.125
"""Number of rows that are needed for each input of a weight, to solve for the weight.
With so many rows noise leaves a third of itself, and a weight that fits a hundredth."""

_LEVELS, _TIMES = 256, 4
"""Largest number of different values of a weight with few bits, and the number of times
that each must occur on average."""

_ROUNDED = 0.2
"""Largest relative difference that rounding explains. Rounding to four bits leaves a
tenth of a weight."""

Run = Callable[[np.ndarray], np.ndarray]
"""Function from a weight to the operator's value."""

OTHER_WEIGHTS = "the graph's initialiser is another one than PyTorch's"

UNLESS = (OTHER_WEIGHTS, FEWER_BITS, NOT_THE_GRAPHS)
"""Beginnings of messages about forms that fit any weight. They are used only if no rule
is more specific."""

_TURNS: Sequence[tuple[str, int, Run]] = (
    ("transposed", 2, lambda w: np.swapaxes(w, 0, 1)),
    ("flipped in height and width", 4, lambda w: w[..., ::-1, ::-1]),
    ("flipped in height", 4, lambda w: w[..., ::-1, :]),
    ("flipped in width", 4, lambda w: w[..., ::-1]),
    ("transposed in height and width", 4, lambda w: np.swapaxes(w, -1, -2)),
    ("shifted by one output channel", 2, lambda w: np.roll(w, 1, 0)),
    ("shifted back by one output channel", 2, lambda w: np.roll(w, -1, 0)),
    ("shifted by one input channel", 2, lambda w: np.roll(w, 1, 1)),
    ("shifted back by one input channel", 2, lambda w: np.roll(w, -1, 1)),
)
"""Possible changes of a weight, each with the smallest number of axes that it needs."""


def linear_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield a matrix product with other forms of its weight."""
    x, weight = it.tensor("input", "self"), _wide(it.weights.get("weight"))
    if weight is None or expected.size * weight.shape[-1] > MOST:
        return
    bias = _wide(it.weights.get("bias"))

    def of(x: np.ndarray, weight: np.ndarray = weight) -> np.ndarray:
        made = x @ weight.T
        return np.asarray(made if bias is None else made + bias)

    for words, value in it.without_skipped():
        yield words, of(value)
    if x is None or x.shape[-1] != weight.shape[-1]:
        return

    def run(weight: np.ndarray) -> np.ndarray:
        return of(x, weight)

    for words, value in it.reordered():
        yield words, of(value)
    yield from _of_input(of, x, actual)
    rows = x.reshape(-1, x.shape[-1])
    yield from _turned(run, weight, expected, actual)
    yield from _solved(run, rows, weight, actual.reshape(len(rows), -1), bias)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution of pictures, without dilation and groups."""

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray | None
    steps: tuple[int, int]
    pads: tuple[int, int]

    @classmethod
    def of(
        cls, it: Operation, expected: np.ndarray, given: np.ndarray | None = None
    ) -> _Convolution | None:
        x, weight = it.tensor("input", "self"), _wide(it.weights.get("weight"))
        x = x if given is None else given
        if x is None or weight is None or x.ndim != _KERNEL_AXES:
            return None
        told = [it.settings.get(name) for name in ("stride", "padding", "dilation")]
        steps, pads, gaps = (_pair(value) for value in told)
        plain = gaps == (1, 1) and it.settings.get("groups", 1) == 1
        if not (plain and steps and pads) or weight.shape[1] != x.shape[1]:
            return None
        if expected.size * weight[0].size > MOST:
            return None
        return cls(x, weight, _wide(it.weights.get("bias")), steps, pads)

    def run(
        self, weight: np.ndarray, x: np.ndarray | None = None, mode: str = "constant"
    ) -> np.ndarray:
        """Return its value with a weight, and with another input or padding."""
        made = _convolved(self.padded(x, mode), weight, self.steps)
        return made if self.bias is None else made + self.bias[:, None, None]

    def padded(self, x: np.ndarray | None = None, mode: str = "constant") -> np.ndarray:
        """Return the input with its border."""
        ring = ((0, 0), (0, 0), (self.pads[0],) * 2, (self.pads[1],) * 2)
        return np.pad(self.x if x is None else x, ring, mode)  # type: ignore[call-overload]  # modes are text

    def rows(self) -> np.ndarray:
        """Return the kernel's input at each place, one row for each."""
        seen = _windows(self.padded(), self.weight, self.steps)
        return seen.transpose(0, 2, 3, 1, 4, 5).reshape(-1, self.weight[0].size)


def weights_fit(it: Operation, expected: np.ndarray, apart: float) -> bool:
    """Whether the graph's weight is known to give PyTorch's value of a convolution.

    `apart` is the root mean square of the error to explain.
    """
    own = _Convolution.of(it, expected)
    return own is not None and rms(own.run(own.weight) - expected) <= _TENTH * apart


def convolution_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield a convolution with its kernel turned, or padded with other values."""
    for words, value in it.without_skipped():
        other = _Convolution.of(it, expected, value)
        if other is not None:
            yield words, other.run(other.weight)
    own = _Convolution.of(it, expected)
    if own is None:
        return
    for words, value in it.reordered():
        yield words, own.run(own.weight, value)
    yield from _of_input(lambda x: own.run(own.weight, x), own.x, actual)
    yield from _turned(own.run, own.weight, expected, actual)
    rows = own.rows()
    made = actual.transpose(0, 2, 3, 1).reshape(len(rows), -1)
    yield from _solved(own.run, rows, own.weight, made, own.bias)
    if any(own.pads):
        for mode in ("edge", "reflect", "wrap"):
            words = f"it is padded with the {mode}, not with 0: its border"
            yield words, own.run(own.weight, mode=mode)


def embedding_forms(
    it: Operation, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield a lookup of other rows."""
    table, ids = _wide(it.weights.get("weight")), it.tensor("indices")
    if table is None or ids is None or ids.dtype.kind not in "iu":
        return

    def run(rows: np.ndarray) -> np.ndarray:
        return np.asarray(table[rows % len(table)])

    if run(ids).shape != expected.shape:
        return
    for step in (1, -1):
        words = f"each id takes another row, {step:+d} from its own"
        if rms(run(ids + step) - actual) < _HUNDREDTH * rms(actual - expected):
            yield words, actual
        # The rows of the table itself may be shifted, with the right row elsewhere.
        if rms(run(ids + step) - expected) < _HUNDREDTH * rms(actual - expected):
            yield f"each id takes another row, {-step:+d} from its own", run(ids)
    yield _other(table), run(ids)


def _of_input(of: Run, x: np.ndarray, actual: np.ndarray) -> Iterator[Form]:
    """Yield the value for the input times a number, and moved by one.

    The operator is linear but for its bias, so the two numbers are solved for.
    """
    if not np.isfinite(x).all() or not x.any():
        return
    bare = of(np.zeros_like(x))
    scaled, moved = of(x) - bare, of(np.ones_like(x)) - bare
    if scaled.shape != actual.shape:
        return
    due = actual - bare
    power = float(np.sum(scaled * scaled))
    if not power:
        return
    factor = float(np.sum(scaled * due)) / power
    if factor and abs(factor - 1) > _HUNDREDTH:
        yield factor_words(factor), bare + factor * scaled
    both = np.stack((scaled.ravel(), moved.ravel()), 1)
    (factor, offset), *_ = np.linalg.lstsq(both, due.ravel(), rcond=None)
    if factor and abs(offset) > _HUNDREDTH * rms(x):
        words = f"its input is {factor:.5g} times PyTorch's, and {offset:+.5g} off"
        yield words, bare + factor * scaled + offset * moved


def factor_words(factor: float) -> str:
    """Return a message about a number that an operator's input is multiplied by."""
    inverse = f" (1/{1 / factor:.5g})" if abs(factor) > 1 + _HUNDREDTH else ""
    return f"its input is {factor:.5g}{inverse} times PyTorch's: a factor in front"


def _turned(
    run: Run, weight: np.ndarray, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    made = run(weight)
    if made.shape != expected.shape:
        return
    apart = rms(actual - expected)
    if rms(made - expected) > _TENTH * apart:
        # The graph's weight is not PyTorch's: look for the turn that makes it so.
        for words, turned in _turns_of(weight):
            if rms(run(turned) - expected) < _HUNDREDTH * apart:
                yield f"the graph's weight is {words}", made
        # A runtime's own rounding, such as Winograd's, may hide a part of it.
        explained = rms(made - actual) <= _FIFTH * apart
        yield _other(weight), actual if explained else made
        return
    for words, turned in _turns_of(weight):
        yield f"its weight is read {words}", run(turned)


def _turns_of(weight: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for words, axes, turn in _TURNS:
        if weight.ndim >= axes:
            turned = turn(weight)
            if turned.shape == weight.shape and not np.array_equal(turned, weight):
                yield words, turned


def _solved(
    run: Run,
    rows: np.ndarray,
    weight: np.ndarray,
    made: np.ndarray,
    bias: np.ndarray | None,
) -> Iterator[Form]:
    """Yield the result of the weight with which the candidate must have computed.

    The weight is found by least squares, if there are more rows than a weight has
    inputs.
    """
    count, inputs = rows.shape
    if count < _ENOUGH * inputs or count * inputs * inputs > MOST:
        return
    due = made if bias is None else made - bias
    solved, *_ = np.linalg.lstsq(rows, due, rcond=None)
    found = solved.T.reshape(weight.shape)
    apart = rms(found - weight) / (rms(weight) or 1.0)
    if apart < _ROUNDED:
        # Fewer bits change the weights of every input. An input that is cut off or
        # rounded looks like a change of that input's weights alone.
        each = np.sqrt(np.mean((solved - weight.reshape(len(weight), -1).T) ** 2, 1))
        if np.median(each) < _TENTH * rms(each):
            return
        yield f"{FEWER_BITS} {apart:.1e} of it: weights of fewer bits", run(found)
    else:
        yield f"{NOT_THE_GRAPHS}: not its own, or lost", run(found)


def _other(weight: np.ndarray) -> str:
    """Return a message about a weight that differs from PyTorch's, with its bits."""
    levels = np.unique(weight).size
    if has_bits(weight.astype(np.float32), 7):
        return f"{OTHER_WEIGHTS}: it was rounded to bfloat16"
    if has_bits(weight.astype(np.float32), 10):
        return f"{OTHER_WEIGHTS}: it was rounded to float16 or TensorFloat-32"
    if levels <= _LEVELS and weight.size > _TIMES * levels:
        return f"{OTHER_WEIGHTS}: it has {levels} levels, so weights of few bits"
    return f"{OTHER_WEIGHTS}: other weights"


def _convolved(x: np.ndarray, weight: np.ndarray, steps: tuple[int, int]) -> np.ndarray:
    """Return a padded picture's convolution (cross-correlation), no dilation."""
    windows = _windows(x, weight, steps)
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True)


def _windows(x: np.ndarray, weight: np.ndarray, steps: tuple[int, int]) -> np.ndarray:
    """Return the kernel's input at each place, ``[n, c, h, w, i, j]``."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))
    return windows[:, :, :: steps[0], :: steps[1]]


def _wide(value: np.ndarray | None) -> np.ndarray | None:
    return None if value is None else value.astype(np.float64)


def _pair(value: object) -> tuple[int, int] | None:
    """Return a setting for both axes; one number stands for two."""
    if not isinstance(value, list) or len(value) not in {1, 2}:
        return None
    return int(value[0]), int(value[-1])
