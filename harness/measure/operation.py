"""An operator of PyTorch's with what it was given, for who computes it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

Form = tuple[str, np.ndarray]
"""Words, and an array that they stand for."""

MOST = 2**33
"""Multiplications that one form of an operator may take; larger ones are not tried."""


_MANY = 4
"""Parts of a concatenation of which every order is tried."""


def _none(_: tuple[int, ...]) -> Iterator[Form]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator and its tensors.

    Attributes:
        op: Its name without namespace and overload: ``conv2d``.
        settings: Its constant arguments, by name.
        arguments: Its tensors that are at hand, in order: argument, value's name in the
            program, value.
        weights: What the deployed graph has as ``weight`` and ``bias``, in PyTorch's
            layout; empty where that is not known.
        others: Yields recorded values and inputs of a shape, by name.
        reordered: Yields the first tensor with the parts that it was put together from
            in another order, in words.

    """

    op: str
    settings: Mapping[str, object] = field(default_factory=dict)
    arguments: Sequence[tuple[str, str, np.ndarray]] = ()
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    others: Callable[[tuple[int, ...]], Iterator[Form]] = _none
    reordered: Callable[[], Iterator[Form]] = lambda: iter(())

    def tensor(self, *names: str) -> np.ndarray | None:
        """Return the first argument of one of these names, in float64 if it floats."""
        for argument, _, value in self.arguments:
            if argument in names:
                return wide(value)
        return None


def other_orders(parts: Sequence[np.ndarray], axis: int) -> Iterator[np.ndarray]:
    """Yield a few parts put together in every order but their own."""
    if len(parts) <= _MANY:
        for order in list(permutations(range(len(parts))))[1:]:
            yield np.concatenate([parts[at] for at in order], axis=axis)


def wide(value: np.ndarray) -> np.ndarray:
    """Return an array in float64 if it floats, else as it is."""
    return value.astype(np.float64) if value.dtype.kind == "f" else value
