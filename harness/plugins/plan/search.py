"""From the effect of each layer alone to the bits of all layers: an integer program.

Each layer is rounded alone, and the effects are squared errors. Errors of different
layers are nearly independent, so their squares add up. How nearly they do is measured
and shown. An integer program then chooses the bits with the fewest bytes whose errors,
as a mean over the values, are together within a budget.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness.core.rounding import FLOAT, Bits

_NEAR_BEST = 1e-3
"""The integer program ends within this share of the best size."""
_SECONDS = 20.0
_TOO_MUCH = 2.0
_TRIED = 4
_SILENCE = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that gets bits: the operators that have the same weights.

    Attributes:
        names: Names of the operators in the deployed file.
        modules: Modules of PyTorch's network with these weights; empty if the converter
            changed the weights, so that the layer stays in float32.
        costs: Number of bits to the bytes that are stored.
        errors: Number of bits to the share of each value's limit that the layer alone
            uses; empty if it was not measured.
        seconds: Number of bits to the time that the layer takes; empty if a plan is to
            be small and not fast.

    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    costs: Mapping[int, int]
    errors: Mapping[int, tuple[float, ...]]
    seconds: Mapping[int, float] = field(default_factory=dict)

    @property
    def prices(self) -> Mapping[int, float]:
        """What a plan makes small, by the numbers of bits that the layer may have."""
        every = self.seconds or self.costs
        return {bits: every[bits] for bits in self.errors or (FLOAT,) if bits in every}

    @property
    def name(self) -> str:
        """The layer's name for a reader."""
        return self.modules[0] if self.modules else self.names[0]

    def share(self, bits: int) -> float:
        """Return the largest share of a limit that the layer uses with some bits."""
        return max(self.errors.get(bits, (0.0,)))


def tried(every: Iterable[int]) -> int:
    """Return the number of bits with which each layer is rounded alone.

    With 4 bits the error is far above that of float32, and still so small that the
    error with other bits follows from it.

    >>> tried((32, 8, 4, 2)), tried((32, 8))
    (4, 8)
    """
    return min(bits for bits in every if bits >= _TRIED)


def errors_by_bits(
    number: int, every: Sequence[int], measured: Mapping[int, Sequence[float]]
) -> dict[int, tuple[float, ...]]:
    """Return the shares of the limits for every number of bits.

    The error of rounding to integers is proportional to the step between two of them,
    which is the range of the weights over ``2**bits - 1``. So what was not measured
    follows from one `number`. A number whose measured shares are not finite is left
    out; if it is `number` itself, nothing is left.

    >>> errors_by_bits(1, (32, 2, 1), {1: [0.9]})
    {32: (0.0,), 2: (0.1,), 1: (0.9,)}
    """
    finite = {
        bits: shares
        for bits, shares in measured.items()
        if all(map(math.isfinite, shares))
    }
    if number not in finite:
        return {}
    found: dict[int, tuple[float, ...]] = {}
    for bits in every:
        if bits in measured and bits not in finite:
            continue
        step = 0.0 if bits == FLOAT else (2**number - 1) / (2**bits - 1)
        shares = finite.get(bits, [share * step**2 for share in finite[number]])
        found[bits] = tuple(round(share, 12) for share in shares)
    return found


def choose(layers: Sequence[Layer], budget: float) -> list[int]:
    """Return the number of bits of each layer, with the fewest bytes or seconds.

    The sum of the layers' errors, each the mean of its shares of the limits, is within
    `budget`. The mean over the values is bounded, and not each value: a plan that obeys
    a bound of each value spends bytes on errors that one value has by chance. A layer
    without errors stays in float32.
    """
    import numpy as np
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    options = [(at, bits) for at, layer in enumerate(layers) for bits in layer.prices]
    costs = np.array([layers[at].prices[bits] for at, bits in options], float)
    owner = np.array([at for at, _ in options])
    count = len(options)
    one_each = sparse.csr_matrix(
        (np.ones(count), (owner, np.arange(count))), shape=(len(layers), count)
    )
    errors = np.array([np.mean(layers[at].errors.get(b, (0.0,))) for at, b in options])
    # More than the whole budget is too much, however much it is. Numbers of like size
    # are easier for the solver.
    shares = np.minimum(errors / budget, _TOO_MUCH)
    with _silent():
        found = milp(
            costs / (costs.max() or 1.0),
            constraints=[
                LinearConstraint(one_each, 1, 1),
                LinearConstraint(shares, -np.inf, 1.0),
            ],
            integrality=np.ones(count),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": _NEAR_BEST, "time_limit": _SECONDS},
        )
    chosen = [FLOAT] * len(layers)
    if found.x is not None:
        for (at, bits), taken in zip(options, found.x, strict=True):
            if taken > 0.5:  # noqa: PLR2004  # it is 0 or 1
                chosen[at] = bits
    return chosen


@contextmanager
def _silent() -> Iterator[None]:
    """Send native output nowhere: HiGHS prints where it repairs a solution."""
    # The descriptor is the process's, so two plans at once take turns.
    with _SILENCE:
        sys.stdout.flush()
        kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            os.close(nowhere)


def bits_of(layers: Sequence[Layer], chosen: Sequence[int]) -> Bits:
    """Return the bits of every operator."""
    return tuple(
        (name, bits)
        for layer, bits in zip(layers, chosen, strict=True)
        for name in layer.names
    )


def summed(layers: Sequence[Layer], chosen: Sequence[int]) -> list[float]:
    """Return the sum of the layers' single errors, as a share of each limit."""
    some = [
        layer.errors[bits]
        for layer, bits in zip(layers, chosen, strict=True)
        if layer.errors
    ]
    return [sum(each) for each in zip(*some, strict=True)]


def price(layers: Sequence[Layer], chosen: Sequence[int]) -> float:
    """Return the bytes or the seconds that the layers take together."""
    return sum(one.prices[bits] for one, bits in zip(layers, chosen, strict=True))
