"""Two arrays as rules about errors see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.measure.operation import Operation
from harness.measure.residuals import rms

NOISE = "spread like noise"
"""How the least particular description of an error begins."""

RIGHT = 32.0
"""A part is right within so many noise floors."""

_SMALL = 1e-3
"""Or, where no floor is known, below this share of the error elsewhere."""

_FEW = 0.01


@dataclass(frozen=True)
class Seen:
    """Two arrays of one shape, in float64, and what is common to the rules.

    Attributes:
        expected: The reference's value.
        actual: The candidate's.
        floor: The value's noise floor, in its own unit; 0 where it is not known.
        op: The PyTorch operator that made it.
        near: What it was made from, or other outputs, by name.
        whole: Whether they are whole numbers or booleans.
        it: The operator with what it was given; None where that is not at hand.

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
        """The candidate's less the reference's."""
        return self.actual - self.expected

    @cached_property
    def right(self) -> float:
        """Root mean square up to which a part is right."""
        known = RIGHT * self.floor
        return max(known, _SMALL * rms(self.error)) if known else 0.0

    def same(self, one: np.ndarray, two: np.ndarray) -> bool:
        """Whether two arrays agree as well as the whole should and does not."""
        apart = rms(one - two)
        enough = max(self.right, 1e-6 * rms(self.expected))
        return apart <= enough and apart < _FEW * rms(self.error)

    def others(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the values near this one that could stand in its place."""
        for name, value in self.near.items():
            if value.shape != self.expected.shape or value.dtype.kind != "f":
                continue
            other = value.astype(np.float64)
            if np.isfinite(other).all() and other.any():
                yield name, other
