"""Check that a network is steady, and that its outputs depend on its inputs.

The same functions call PyTorch's module and a deployed file. `run` is one of the two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from harness.core.case import Component, TensorSpec
from harness.core.contract import is_batch
from harness.core.entry import Entry
from harness.measure.named_arrays import Arrays, Run
from harness.measure.trace import arrays_of
from harness.measure.unread import other_padding, taken_out, without

LIMIT_S = 60.0
"""Seconds after which no further input is tried. The others are reported as not
tried."""

APART = 0.01
"""Relative error of the outputs, as a share of an output's size. Exchanged inputs are
looked for only above it."""

NEARER = 4.0
"""Factor by which the outputs' error must fall after an exchange of two inputs."""

NOTHING = 1e-12
"""Size below which an output counts as zeros. A runtime whose tanh rounds to zero gives
zeros where another one gives 1e-32, and no input is dead for that."""

BESIDE = "beside"
"""Key in an entry's meta: how far an item's answers move in PyTorch, by `beside`."""

MATES, PADDING = "batch mates", "padding"
"""What an item's answer must not depend on."""

EFFECTS = "effects"
"""Key in an entry's meta: the effect of each input that was tried on PyTorch's
outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """PyTorch's inputs and outputs, for calls of a file with the same inputs.

    Attributes:
        base: Value of every input.
        changed: Another draw of each input that can be drawn differently.
        outputs: PyTorch's outputs for `base`.
        batch: Inputs of a batch of two items or more; empty if there is no batch.

    """

    base: Arrays
    changed: Arrays
    outputs: Arrays
    batch: Arrays = field(default_factory=dict)

    @property
    def arrays(self) -> Arrays:
        """All arrays by part and name, as an entry has them."""
        return {
            f"{part}/{n}": v for part in _PARTS for n, v in getattr(self, part).items()
        }

    @classmethod
    def load(cls, entry: Entry) -> Asked:
        """Return what an entry has of `arrays`.

        Raises:
            StoreError: The entry is damaged.

        """
        found: dict[str, dict[str, npt.NDArray[Any]]] = {part: {} for part in _PARTS}
        for key, array in arrays_of(entry).items():
            part, _, name = key.partition("/")
            if part in found:
                found[part][name] = array
        return cls(**found)


_PARTS = ("base", "changed", "outputs", "batch")


def effects_of(entry: Entry) -> dict[str, float]:
    """Return the effect of each tried input on PyTorch's outputs."""
    return dict(cast("Mapping[str, float]", entry.meta[EFFECTS]))


def beside_of(entry: Entry) -> dict[str, float]:
    """Return how far an item moves in PyTorch; empty in entries of older versions."""
    return dict(cast("Mapping[str, float]", entry.meta.get(BESIDE, {})))


def effects(
    run: Run, base: Arrays, changed: Arrays, *, limit_s: float = LIMIT_S
) -> tuple[Arrays, dict[str, float | None]]:
    """Change each input alone, and measure the change of the outputs.

    `changed` has another draw of each input that can be drawn differently. After
    `limit_s` seconds no further input is tried.

    Returns:
        The outputs for `base`, and the effect of each input. The effect is the largest
        relative change (rms over rms) of an output: 0 for no change, None if the input
        was not tried or no output is finite.

    """
    start = time.monotonic()
    outputs = run(base)
    found: dict[str, float | None] = {}
    for name in base:
        late = time.monotonic() - start > limit_s
        tried = name in changed and not late
        found[name] = None
        if tried:
            moved = distance(outputs, run({**base, name: changed[name]}))
            found[name] = None if math.isnan(moved) else moved
    return outputs, found


def exchanged(
    run: Run, base: Arrays, expected: Arrays, actual: Arrays
) -> Iterator[dict[str, Any]]:
    """Yield pairs of inputs whose exchange makes the outputs nearly correct.

    Nothing is run if the outputs are near enough without an exchange. Each pair has the
    ``names`` of the inputs and the relative error of the outputs: ``error`` as they
    are, and ``mended`` after the exchange.
    """
    error = distance(expected, actual)
    if not error > APART:
        return
    for one, two in combinations(base, 2):
        first, second = base[one], base[two]
        if (first.shape, first.dtype) != (second.shape, second.dtype):
            continue
        if first.dtype.kind == "i" and first.max() != second.max():
            continue  # an index may be outside the other input's table
        mended = distance(expected, run({**base, one: second, two: first}))
        if mended * NEARER < error:
            yield {"names": [one, two], "error": error, "mended": mended}


def beside(run: Run, component: Component, batch: Arrays) -> dict[str, float]:
    """Return how far an item's answers move with what they must not depend on.

    Under ``batch mates`` every other item of the batch becomes that item. Under
    ``padding`` other values stand where a mask takes the inputs out. The distances are
    relative, as in `distance`, and of what is read. A question that cannot be asked is
    left out, and so is an answer that is not finite.
    """
    of_items = [batch[s.name] for s in component.inputs if batch and _is_batched(s)]
    if not of_items:
        return {}
    at, items = _quietest(of_items), len(of_items[0])
    alone = {
        spec.name: np.repeat(batch[spec.name][at : at + 1], items, axis=0)
        if _is_batched(spec)
        else batch[spec.name]
        for spec in component.inputs
    }
    asked = {MATES: alone, PADDING: other_padding(component, batch)}
    before, unread = run(batch), taken_out(component, batch)
    found = {}
    for what, other in asked.items():
        if other is None or all(np.array_equal(other[n], batch[n]) for n in batch):
            continue
        after = run(other)
        one, two = (
            {
                name: value[at : at + 1]
                for name, value in _read_of(component, made, unread, items).items()
            }
            for made in (before, after)
        )
        moved = distance(one, two)
        if one and math.isfinite(moved):
            found[what] = moved
    return found


def _quietest(values: Sequence[npt.NDArray[Any]]) -> int:
    """Return the item whose largest number is the least: others decide a scale."""
    floats = [value for value in values if value.dtype.kind == "f" and value.size]
    if not floats:
        return 0
    peaks = [np.abs(value).reshape(len(value), -1).max(axis=1) for value in floats]
    return int(np.argmin(np.sum(peaks, axis=0)))


def _is_batched(spec: TensorSpec) -> bool:
    first = spec.shape[0] if spec.shape else 0
    return isinstance(first, str) and is_batch(first)


def _read_of(
    component: Component, made: Arrays, unread: Arrays, items: int
) -> dict[str, npt.NDArray[Any]]:
    """Return what is read of each output with an axis of items."""
    found = {}
    for spec in component.outputs:
        value = made[spec.name]
        # The shape of a foreign file's output may not be known.
        batched = _is_batched(spec) or (not spec.shape and value.shape[:1] == (items,))
        if batched and value.dtype.kind == "f":
            if spec.name in unread:
                (value,) = without(unread[spec.name], value)
            found[spec.name] = value
    return found


def repeated(run: Run, feeds: Arrays, first: Arrays, times: int) -> float:
    """Call again with the same inputs, and return the largest change of an output.

    The change from the `first` outputs is 0 if all bits are equal. It is infinite if a
    NaN or another shape appears.
    """
    runs = (run(feeds) for _ in range(times))  # one is in memory at a time
    return max(_gap(first[name], made[name]) for made in runs for name in first)


def distance(expected: Arrays, actual: Arrays) -> float:
    """Return the largest relative error of an output: rms error over rms.

    It is infinite if a shape differs, or if an output changes from zeros. It is 0 for
    an output that is smaller than `NOTHING` in both, and NaN if no output has a finite
    value: such outputs tell nothing.
    """
    found = [_relative(expected[name], actual[name]) for name in expected]
    return max((one for one in found if not math.isnan(one)), default=math.nan)


def loses(expected: Arrays, actual: Arrays) -> bool:
    """Whether a value is not finite where the expected one is.

    Such outputs answer no question about inputs: a NaN hides every effect.
    """
    return any(
        expected[name].shape == actual[name].shape
        and bool((np.isfinite(expected[name]) & ~np.isfinite(actual[name])).any())
        for name in expected
    )


def nearby(value: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield other values for an input that is drawn the same every time.

    Nothing declares which other values are valid, so numbers go halfway to 0: an index
    stays in its table, and a guidance or a size stays plausible. Zeros become 1, and
    booleans are inverted. The first half of the last axis stays, so a mask still reads
    its first tokens. The second result has the original numbers in reverse order.
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
    finite = np.isfinite(one) & np.isfinite(two)
    if not np.array_equal(one[~finite], two[~finite], equal_nan=True):
        return float("inf")
    one, two = one[finite], two[finite]
    if finite.size and not one.size:
        return float("nan")
    size = float(np.sqrt(np.mean(np.square(one)))) if one.size else 0.0
    apart = float(np.sqrt(np.mean(np.square(two - one)))) if one.size else 0.0
    if apart == 0.0 or max(size, apart) < NOTHING:
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
    """Return, for each input, its first draw that differs from the base."""
    found: dict[str, npt.NDArray[Any]] = {}
    for other in others:
        for name, value in base.items():
            if name not in found and not np.array_equal(other[name], value):
                found[name] = other[name]
    return found
