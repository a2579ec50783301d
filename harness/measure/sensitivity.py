"""Call a network again: does it answer the same, and do its inputs matter to it.

PyTorch's module and a deployed file are asked by the same functions; `run` is either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from harness.core.entry import Entry

Arrays = Mapping[str, npt.NDArray[Any]]
Run = Callable[[Arrays], Arrays]
"""Inputs by name to outputs by name."""

LIMIT_S = 60.0
"""How long inputs are tried, one by one; those left over are said to be untried."""

APART = 0.01
"""Of an output's size: closer to the reference than this, no inputs are exchanged."""

NEARER = 4.0
"""How many times nearer the outputs must come when two inputs are exchanged."""


FILE = "asked.npz"
EFFECTS = "effects"
"""Of an entry's meta: how much each input that was tried matters to PyTorch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What PyTorch was asked and answered, for a file to be asked the same.

    Attributes:
        base: Every input.
        changed: Another draw of those inputs that can be drawn otherwise.
        outputs: What PyTorch made of `base`.

    """

    base: Arrays
    changed: Arrays
    outputs: Arrays

    def save(self, folder: Path) -> None:
        """Write `FILE`."""
        parts = {
            f"{part}/{n}": v for part in _PARTS for n, v in getattr(self, part).items()
        }
        np.savez(folder / FILE, **parts)

    @classmethod
    def load(cls, path: Path) -> Asked:
        """Read what `save` wrote."""
        found: dict[str, dict[str, npt.NDArray[Any]]] = {part: {} for part in _PARTS}
        with np.load(path) as stored:
            for key in stored.files:
                part, _, name = key.partition("/")
                found[part][name] = stored[key]
        return cls(**found)


_PARTS = ("base", "changed", "outputs")


def effects_of(entry: Entry) -> dict[str, float]:
    """Return how much each input that was tried matters to PyTorch."""
    return dict(cast("Mapping[str, float]", entry.meta[EFFECTS]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """Two inputs that a file takes for one another.

    Attributes:
        names: The two.
        error: Of the outputs as fed, in sizes of the outputs.
        mended: The same with the two exchanged.

    """

    names: tuple[str, str]
    error: float
    mended: float


def effects(
    run: Run, base: Arrays, changed: Arrays, *, limit_s: float = LIMIT_S
) -> tuple[Arrays, dict[str, float | None]]:
    """Change each input alone, and see how far the outputs move.

    Args:
        run: What is asked.
        base: Every input.
        changed: Another draw of those inputs that can be drawn otherwise.
        limit_s: No further input is tried after this.

    Returns:
        The outputs for `base`, and each input's effect in sizes of the output that it
        moves most: 0 for none, None where it was not tried.

    """
    start = time.monotonic()
    outputs = run(base)
    found: dict[str, float | None] = {}
    for name in base:
        late = time.monotonic() - start > limit_s
        tried = name in changed and not late
        found[name] = (
            distance(outputs, run({**base, name: changed[name]})) if tried else None
        )
    return outputs, found


def exchanged(
    run: Run, base: Arrays, expected: Arrays, actual: Arrays
) -> Iterator[Exchanged]:
    """Yield pairs of inputs that, exchanged, bring the outputs to the expected ones.

    Nothing is run where the outputs are near enough as they are.
    """
    error = distance(expected, actual)
    if not error > APART:
        return
    for one, two in combinations(base, 2):
        first, second = base[one], base[two]
        if (first.shape, first.dtype) != (second.shape, second.dtype):
            continue
        if first.dtype.kind == "i" and first.max() != second.max():
            continue  # an index of one may lie outside the other's table
        mended = distance(expected, run({**base, one: second, two: first}))
        if mended * NEARER < error:
            yield Exchanged(names=(one, two), error=error, mended=mended)


def repeated(run: Run, feeds: Arrays, first: Arrays, times: int) -> float:
    """Call again with the same inputs, and return the largest change; 0 if none.

    Infinite where NaN or another shape came.
    """
    return max(largest_gap(first, run(feeds)) for _ in range(times))


def distance(expected: Arrays, actual: Arrays) -> float:
    """Return the largest relative distance of an output: RMS of it over RMS."""
    return max(_relative(expected[name], actual[name]) for name in expected)


def largest_gap(one: Arrays, two: Arrays) -> float:
    """Return the largest difference of any output, 0 where all bits are equal."""
    return max(_gap(one[name], two[name]) for name in one)


def nearby(value: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield other values for an input that is drawn the same every time.

    Nobody says what else it may hold, so numbers go halfway to nought: an index stays
    in its table, a guidance a guidance, a size a size. A mask still reads its first
    tokens, for the first half of the last axis stays. Then the value's own numbers, in
    the other order.
    """
    other = np.array(value, ndmin=1)
    part = other[..., other.shape[-1] // 2 :]
    if value.dtype.kind == "b":
        part[...] = ~part
    elif part.any():
        part[...] = np.trunc(part / 2) if value.dtype.kind in "iu" else part / 2
    else:
        part[...] = 1
    yield other.reshape(value.shape)
    yield np.flip(np.array(value, ndmin=1), axis=-1).reshape(value.shape)


def _relative(expected: npt.NDArray[Any], actual: npt.NDArray[Any]) -> float:
    if expected.shape != actual.shape:
        return float("inf")
    one, two = expected.astype(np.float64), actual.astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(one)))) if one.size else 0.0
    apart = float(np.sqrt(np.mean(np.square(two - one)))) if one.size else 0.0
    if apart == 0.0:
        return 0.0
    return apart / size if size else float("inf")


def _gap(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> float:
    if np.array_equal(one, two, equal_nan=one.dtype.kind == "f"):
        return 0.0
    if one.shape != two.shape:
        return float("inf")
    gap = float(np.max(np.abs(one.astype(np.float64) - two.astype(np.float64))))
    return gap if np.isfinite(gap) else float("inf")


def differing(base: Arrays, others: Sequence[Arrays]) -> dict[str, npt.NDArray[Any]]:
    """Return, for each input, the first other draw of it that is not the same."""
    found = {}
    for name, value in base.items():
        draws = (other[name] for other in others)
        if (
            draw := next((d for d in draws if not np.array_equal(d, value)), None)
        ) is not None:
            found[name] = draw
    return found
