"""A value's noise floor: how large float32's rounding error may be, chance included.

One float32 run is one draw of its rounding error. Over few elements such a draw can be
far below the next one, so a floor from one draw alone makes sound runtimes fail. The
draw is therefore repeated where a value has few elements. Convolutions are computed in
a second way. The estimate is then widened by the chance that remains. docs/floors.md
has the argument and the measurements.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress

import numpy as np
import torch

from harness.core.probes import Probe
from harness.runtimes.pytorch.program import as_array

FEW = 64
"""Values with fewer elements get more draws. Measured under 27 simulated CPUs: with one
draw the worst CPU's error is 6.4 floors below 8 elements and 1.5 from 64 on."""

DRAWS = 8
"""Number of further float32 runs for values of few elements."""

CHANCE = 1e-4
"""Share of equally good float32 runs whose error is above the floor."""

_ONE_IN = 24
"""An element moves up by one unit in the last place in one of so many cases, and down
in one of as many. The variance, 1/12 of a unit squared, is that of one rounding."""

_LARGEST = 1e30
"""Larger values mask a softmax; one step up from them could be infinity."""


def convolves(probes: Iterable[Probe]) -> bool:
    """Whether a program has convolutions, which CPUs compute in different ways."""
    return any("conv" in probe.op.lower() for probe in probes)


@contextmanager
def other_convolutions() -> Iterator[None]:
    """Compute convolutions without oneDNN, in a way that all CPUs share.

    oneDNN chooses its method by the instruction set. In the first layers of an
    autoencoder its error was 2.8 times as large with AVX2 as with AVX-512.
    """
    with warnings.catch_warnings():
        # This sets all flags, and PyTorch warns about the one for Intel's GPUs.
        warnings.simplefilter("ignore", UserWarning)
        with torch.backends.mkldnn.flags(enabled=False):
            yield


class _AllSeen(Exception):  # noqa: N818  # no error: it ends a run early
    """Every wanted value was seen, so the rest of the program need not run."""


def other_rounding(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that rounds a float32 tensor as another machine might.

    The function moves single elements to the next float32 number, up or down, as random
    rounding does in Monte Carlo arithmetic (D. S. Parker, *Monte Carlo arithmetic*,
    1997). Other dtypes, zeros and masks are not changed.
    """
    generator = torch.Generator().manual_seed(seed)

    def rounded(value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        drawn = torch.empty(value.shape, dtype=torch.int8)
        drawn.random_(0, _ONE_IN, generator=generator)
        step = (drawn == 0).to(torch.int32) - (drawn == 1).to(torch.int32)
        moves = (value != 0) & (value.abs() < _LARGEST)
        # Neighbouring floats have neighbouring bit patterns. The layout is kept because
        # a view of the value may depend on it.
        moved = value.clone()
        moved.view(torch.int32).add_(step.to(value.device) * moves)
        return moved

    return rounded


def redraw(
    run: Callable[..., tuple[torch.Tensor, ...]],
    inputs: tuple[torch.Tensor, ...],
    values: Collection[str],
    outputs: Callable[[tuple[torch.Tensor, ...]], Mapping[str, np.ndarray]],
    *,
    whole: bool,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield values by name of further float32 runs that differ in rounding alone.

    `run` is `Program.run`, and `outputs` names what it returns. Unless the `whole` run
    is wanted, it ends at the last of the wanted `values`.
    """
    for seed in range(DRAWS):
        seen: dict[str, np.ndarray] = {}

        def keep(name: str, value: torch.Tensor) -> None:
            if name in values:
                seen[name] = as_array(value).copy()  # noqa: B023  # called in this round
            if not whole and len(seen) == len(values):  # noqa: B023  # likewise
                raise _AllSeen

        with suppress(_AllSeen):
            seen |= outputs(run(inputs, keep, rounding=other_rounding(seed)))
        yield seen


def floor_of(runs: Sequence[float], draws: Sequence[float], count: int) -> float:
    """Return the error that one more float32 run exceeds with probability `CHANCE`.

    Args:
        runs: Mean squared error of each float32 run against float64, in the square of
            the value's unit; at least one.
        draws: Mean squared error of each run that differs in rounding alone, as
            `redraw` makes them.
        count: Number of elements of the value, at least one.

    Returns:
        The root of the mean of all errors, times `widening`, in the value's unit.

    """
    every = (*runs, *draws)
    freedom = _freedom(draws, count)
    mean = math.fsum(every) / len(every)
    return math.sqrt(mean) * widening(freedom, freedom * len(every))


def widening(freedom: float, of_floor: float) -> float:
    """Return how far one draw's root mean square may be above an estimate of it.

    The ratio of two independent mean squares of normal errors follows Fisher's F
    distribution (R. A. Fisher, 1924).

    Args:
        freedom: Degrees of freedom of one draw: its elements with independent errors.
        of_floor: Degrees of freedom of the estimate.

    >>> [round(widening(3, n), 1) for n in (3, 27)], round(widening(9e5, 9e5), 2)
    ([25.7, 3.2], 1.0)
    """
    from scipy.special import fdtri  # late: most floors of a store are read, not made

    return math.sqrt(float(fdtri(freedom, of_floor, 1.0 - CHANCE)))


def _freedom(draws: Sequence[float], count: int) -> float:
    """Return how many elements have independent errors, from the scatter of the draws.

    A mean square with f degrees of freedom has variance 2 mean²/f (F. E.
    Satterthwaite, 1946). Without draws all elements count as independent; by
    measurement this does no harm from `FEW` elements on.
    """
    variance = float(np.var(draws, ddof=1)) if draws else 0.0
    if variance == 0.0:
        return float(count)
    return min(float(count), max(1.0, 2.0 * float(np.mean(draws)) ** 2 / variance))
