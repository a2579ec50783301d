"""The data that rules about an error get: two arrays and their operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

import numpy as np

from harness.measure.patterns import RIGHT, plain_name
from harness.plugins.patterns.arithmetic import explains, rms, usual_size

Form = tuple[str, np.ndarray]
"""A message, and the array that the message describes."""

MOST = 2**33
"""Largest number of multiplications that a form of an operator may need. Larger forms
are not tried."""


_MANY = 4
"""Largest number of parts of a concatenation for which every order is tried."""


def _none(_: tuple[int, ...]) -> Iterator[Form]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator of PyTorch with its input tensors.

    Attributes:
        op: Name of the operator without namespace and overload: ``conv2d``.
        settings: Constant arguments of the operator, by name.
        arguments: Tensors of the operator that are available, in order. Each is a
            triple: the argument's name, the name of the value in the program, the
            value.
        weights: ``weight`` and ``bias`` of the deployed graph, in PyTorch's layout;
            empty if they are not known.
        others: Function that yields recorded values and inputs of a shape, by name.
        reordered: Function that yields the first tensor with its concatenated parts in
            another order, each with a message.
        skipped: Function that yields, for each operator in front that the graph lacks
            whose own input is known, its place, that input's name, and that input.
        mended: Function from PyTorch's value and the candidate's to the value that the
            file's own operators give, with a message about the one change with which
            they give PyTorch's.

    """

    op: str
    settings: Mapping[str, object] = field(default_factory=dict)
    arguments: Sequence[tuple[str, str, np.ndarray]] = ()
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    others: Callable[[tuple[int, ...]], Iterator[Form]] = _none
    reordered: Callable[[], Iterator[Form]] = lambda: iter(())
    skipped: Callable[[], Iterator[tuple[str, str, np.ndarray]]] = lambda: iter(())
    mended: Callable[[np.ndarray, np.ndarray], Iterator[Form]] = lambda *_: iter(())

    def without_skipped(self) -> Iterator[Form]:
        """Yield what the operator reads if one in front is not there."""
        for place, name, value in self.skipped():
            words = f"{place} is not in the file: it reads {name} in its place"
            yield words, wide(value)

    def tensor(self, *names: str) -> np.ndarray | None:
        """Return the first argument with one of the names; floats become float64."""
        for argument, _, value in self.arguments:
            if argument in names:
                return wide(value)
        return None


def other_orders(parts: Sequence[np.ndarray], axis: int) -> Iterator[np.ndarray]:
    """Yield a few parts concatenated in every order except their own."""
    if len(parts) <= _MANY:
        for order in list(permutations(range(len(parts))))[1:]:
            yield np.concatenate([parts[at] for at in order], axis=axis)


def halves_and_seconds(
    x: np.ndarray | None, shape: tuple[int, ...]
) -> Iterator[tuple[list[np.ndarray], list[np.ndarray], str]]:
    """Yield two ways to take one shape from an array that is twice as large.

    Each has what PyTorch may take, what a candidate may take in its place, and a
    message. Nothing is yielded if no axis alone is halved.
    """
    if x is None or x.ndim != len(shape) or x.size != 2 * math.prod(shape):
        return
    axes = [axis for axis in range(x.ndim) if x.shape[axis] == 2 * shape[axis]]
    if len(axes) != 1:
        return
    (axis,) = axes
    half = shape[axis]
    halves = [np.take(x, range(at, at + half), axis) for at in (0, half)]
    seconds = [np.take(x, range(at, 2 * half, 2), axis) for at in (0, 1)]
    pairs = "pairs of a rotary embedding"
    words = f"it takes every second place along axis {axis}, not one half: {pairs}"
    yield halves, seconds, words
    words = f"it takes one half along axis {axis}, not every second place: {pairs}"
    yield seconds, halves, words


def wide(value: np.ndarray) -> np.ndarray:
    """Return a floating-point array in float64, and any other array unchanged."""
    return value.astype(np.float64) if value.dtype.kind == "f" else value


_SMALL = 1e-3
"""Share of the whole error within which a part is right, if this is more than `RIGHT`
floors."""

_FEW = 0.01
_SLIGHT = 1e-4
_ROUNDING = 1e-6
"""Share of a value's usual size that rounding may cause where no floor is known."""

_TRIED = 4096
"""Number of elements of which a function is computed before it is of all."""


@dataclass(frozen=True)
class Seen:
    """Two arrays of one shape, in float64, and what the rules share about them.

    Attributes:
        expected: Value of the reference.
        actual: Value of the candidate.
        floor: Noise floor of the value, in its own unit; 0 if it is not known.
        op: PyTorch operator that computed the value.
        near: Inputs of the operator, or other outputs, by name.
        whole: Whether the values are integers or booleans.
        it: Operator with its inputs; None if they are not available.

    """

    expected: np.ndarray
    actual: np.ndarray
    floor: float
    op: str
    near: Mapping[str, np.ndarray]
    whole: bool
    it: Operation | None = None

    @cached_property
    def error(self) -> np.ndarray:
        """The candidate's value minus the reference's."""
        return self.actual - self.expected

    @cached_property
    def right(self) -> float:
        """The root mean square of the error up to which a part is right."""
        known = RIGHT * self.floor
        return max(known, min(_SMALL * rms(self.error), self.slight)) if known else 0.0

    @cached_property
    def _nearly(self) -> float:
        """The root mean square up to which the whole value agrees with another."""
        known = RIGHT * self.floor
        nearly = max(known, _SMALL * rms(self.error)) if known else 0.0
        return max(nearly, _ROUNDING * usual_size(self.expected))

    @cached_property
    def slight(self) -> float:
        """A ten-thousandth of the usual size of the value.

        A part that is off by more is not right, however large other errors are.
        """
        return _SLIGHT * usual_size(self.expected)

    @cached_property
    def name(self) -> str:
        """PyTorch's short name of the operator, for PyTorch's and ONNX's names."""
        return plain_name(self.op)

    def explained_by(self, made: np.ndarray, share: float = _FEW) -> bool:
        """Whether the candidate's value is `made`, but for a small part of its error.

        `share` is the largest share of the error that may be left.
        """
        return explains(self.actual - made, self.error, share, self._noise)

    @cached_property
    def _noise(self) -> float:
        return max(RIGHT * self.floor, self._rounding)

    @cached_property
    def _rounding(self) -> float:
        """What float32 may round of either value; each rounds at its own size."""
        return _ROUNDING * max(map(usual_size, (self.expected, self.actual)))

    @cached_property
    def _enough(self) -> tuple[float, float]:
        """The largest error of arrays that agree, and one that is too large."""
        return max(self.right, self._rounding), _FEW * rms(self.error)

    def same(self, one: np.ndarray, two: np.ndarray) -> bool:
        """Whether two arrays agree much better than the whole value does."""
        enough, too_large = self._enough
        if not ((apart := rms(one - two)) <= enough and apart < too_large):
            return False
        if one.shape != self.error.shape:  # a part of the value, or it is sorted
            return True
        return explains(one - two, self.error, _FEW, self._noise)

    def maps(
        self,
        function: Callable[[np.ndarray], np.ndarray],
        argument: np.ndarray,
        values: np.ndarray,
    ) -> bool:
        """Whether values agree with an elementwise function of an argument."""
        # The error of all elements is no smaller than what the first ones add to it.
        first = function(argument.flat[:_TRIED]) - values.flat[:_TRIED]
        least = rms(first) * math.sqrt(first.size / values.size)
        return least <= self._enough[0] and self.same(values, function(argument))

    def others(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the values near this one that could stand in its place."""
        for name, value in self.near.items():
            if value.shape != self.expected.shape or value.dtype.kind != "f":
                continue
            other = value.astype(np.float64)
            if np.isfinite(other).all() and other.any():
                yield name, other
