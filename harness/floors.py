"""A value's noise floor: how large float32's rounding error may be, by chance too.

One float32 run is one draw of its rounding error. Over few elements such a draw can be
far below the next one, so a floor that rests on one draw makes sound runtimes fail.
Here the draw is repeated where a value has few elements, and the estimate is widened by
what chance can still do. docs/floors.md has the argument and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import numpy as np
import torch

FEW = 64
"""Values with fewer elements get more draws. Measured under 27 simulated CPUs: with one
draw the worst CPU stands at 6.4 floors below 8 elements and at 1.5 from 64 on."""

DRAWS = 8
"""Further float32 runs for values of few elements."""

CHANCE = 1e-4
"""Share of equally good float32 runs whose error is above the floor."""

_ONE_IN = 24
"""An element goes up one unit in the last place in one of so many cases, and down in as
many: the variance, 1/12 of a unit squared, is that of one rounding."""

_LARGEST = 1e30
"""What is beyond it masks a softmax; one step up could be infinity."""


class _AllSeen(Exception):  # noqa: N818  # no error: it ends a run early
    """Every wanted value was seen, so the rest of the program need not run."""


def other_rounding(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that rounds a float32 tensor as another machine might.

    It moves single elements to the next float32 number, up or down, as random
    rounding does in Monte Carlo arithmetic (D. S. Parker, *Monte Carlo arithmetic*,
    1997). Other dtypes, zeros and masks stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)

    def rounded(value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        drawn = torch.empty(value.shape, dtype=torch.int8)
        drawn.random_(0, _ONE_IN, generator=generator)
        step = (drawn == 0).to(torch.int32) - (drawn == 1).to(torch.int32)
        moves = (value != 0) & (value.abs() < _LARGEST)
        # Neighbouring floats have neighbouring bit patterns.
        bits = value.contiguous().view(torch.int32)
        return (bits + step.to(value.device) * moves).view(torch.float32)

    return rounded


def redraw(
    run: Callable[..., tuple[torch.Tensor, ...]],
    inputs: tuple[torch.Tensor, ...],
    values: Collection[str],
    outputs: Callable[[tuple[torch.Tensor, ...]], Mapping[str, np.ndarray]],
    *,
    whole: bool,
) -> list[dict[str, np.ndarray]]:
    """Return values of further float32 runs that differ in rounding alone.

    Args:
        run: Runs a program, as `Program.run` does.
        inputs: One sample, in order.
        values: Names of the wanted values.
        outputs: Names what a run returns.
        whole: Whether outputs are wanted; else a run ends at the last wanted value.

    Returns:
        One dict a draw, value's name to its array.

    """
    draws = []
    for seed in range(DRAWS):
        seen: dict[str, np.ndarray] = {}

        def keep(name: str, value: torch.Tensor) -> None:
            if name in values:
                seen[name] = value.detach().cpu().numpy().copy()  # noqa: B023  # called in this round
            if not whole and len(seen) == len(values):  # noqa: B023  # likewise
                raise _AllSeen

        with suppress(_AllSeen):
            seen |= outputs(run(inputs, keep, rounding=other_rounding(seed)))
        draws.append(seen)
    return draws


def floor_of(mean_squares: Sequence[float], count: int) -> float:
    """Return the error that one more float32 run stays below, but for `CHANCE`.

    Args:
        mean_squares: Mean squared error of each draw against float64, in the square of
            the value's unit; at least one.
        count: Elements of the value, at least one.

    Returns:
        The root of the draws' mean, times `widening`, in the value's unit.

    """
    mean = math.fsum(mean_squares) / len(mean_squares)
    freedom = _freedom(mean_squares, mean, count)
    return math.sqrt(mean) * widening(freedom, freedom * len(mean_squares))


def widening(freedom: float, of_floor: float) -> float:
    """Return how far one draw's root mean square may be above an estimate of it.

    The ratio of two independent mean squares of normal errors follows Fisher's F
    distribution (R. A. Fisher, 1924).

    Args:
        freedom: Degrees of freedom of one draw: its elements that err independently.
        of_floor: Those of the estimate.

    >>> [round(widening(3, n), 1) for n in (3, 27)], round(widening(9e5, 9e5), 2)
    ([25.7, 3.2], 1.0)
    """
    from scipy.special import fdtri  # late: most floors of a store are read, not made

    return math.sqrt(float(fdtri(freedom, of_floor, 1.0 - CHANCE)))


def _freedom(mean_squares: Sequence[float], mean: float, count: int) -> float:
    """Return how many elements err independently, by how much the draws scatter.

    A mean square with f degrees of freedom has variance 2 mean²/f (F. E.
    Satterthwaite, 1946). One draw does not scatter, so its elements count as
    independent; from `FEW` elements on that was measured to do no harm.
    """
    if len(mean_squares) == 1 or mean == 0.0:
        return float(count)
    variance = float(np.var(mean_squares, ddof=1))
    return float(min(count, max(1.0, 2.0 * mean**2 / variance))) if variance else count
