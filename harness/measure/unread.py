"""Find what a mask takes out: rows of an output, and values made of padding alone.

A mask of tokens is 1 for what is read and 0 for padding. What a network answers at
padding is read by nobody, and two right implementations of attention may answer
differently there: a query that sees no key has no defined answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.case import Component, TensorSpec

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

_MASK = "mask"
_DRAWN = ("", "pipeline")
"""Kinds of an input that may be a mask by its name: the recipe alone draws it."""

_FIXED = ("timestep", "sizes")
"""Kinds of an input that no mask covers: a number for each item."""


def is_mask(spec: TensorSpec) -> bool:
    """Whether an input is a mask of tokens; a kernel's float mask of scores is not."""
    if spec.draw == _MASK:
        return True
    named = spec.draw in _DRAWN and _MASK in spec.name
    return named and not spec.dtype.startswith("float")


def taken_out(component: Component, feeds: Arrays) -> dict[str, Array]:
    """Return the rows that masks take out of each output, as booleans.

    An output has such rows if its first axes are those of a mask: ``[batch, tokens,
    width]`` has those of ``[batch, tokens]``. The array has the mask's axes and one of
    size 1 for each further axis. An output that is left out has no such rows.
    """
    found: dict[str, Array] = {}
    for spec in component.outputs:
        for axes, out in _masked(component, feeds):
            if spec.shape[: len(axes)] == axes and out.any():
                found[spec.name] = out.reshape(
                    *out.shape, *(1 for _ in spec.shape[len(axes) :])
                )
    return found


def other_padding(component: Component, feeds: Arrays) -> dict[str, Array] | None:
    """Return the inputs with other values at what a mask takes out.

    Ids stay within those that the sample has. None if no mask takes anything out, or
    there is nothing to change.
    """
    changed = dict(feeds)
    for axes, out in _masked(component, feeds):
        for spec in component.inputs:
            covered = spec.shape[: len(axes)] == axes and spec.draw not in _FIXED
            if not covered or is_mask(spec) or not out.any():
                continue
            value = feeds[spec.name]
            rows = out.reshape(*out.shape, *(1 for _ in spec.shape[len(axes) :]))
            changed[spec.name] = np.where(rows, _another(value), value)
    if all(np.array_equal(value, feeds[name]) for name, value in changed.items()):
        return None
    return changed


def without(unread: Array, *values: Array) -> tuple[Array, ...]:
    """Return values with zeros where nobody reads them.

    `unread` has booleans, and its shape is broadcast to that of each value. A value of
    another shape stays: a file may declare axes that its output does not have.
    """
    return tuple(
        np.where(unread, np.zeros((), value.dtype), value)
        if _covers(unread.shape, value.shape)
        else value
        for value in values
    )


def _covers(rows: Sequence[int], shape: Sequence[int]) -> bool:
    return len(rows) == len(shape) and all(
        row in {1, size} for row, size in zip(rows, shape, strict=True)
    )


def _masked(
    component: Component, feeds: Arrays
) -> list[tuple[tuple[int | str, ...], Array]]:
    """Return axes, without those of size 1, and what is taken out, for each mask.

    A mask of queries and keys, ``[batch, tokens, tokens]``, takes out the queries that
    see no key.
    """
    found = []
    for spec in component.inputs:
        if not is_mask(spec):
            continue
        kept = [axis for axis, size in enumerate(spec.shape) if size != 1]
        axes = tuple(spec.shape[axis] for axis in kept)
        value = feeds[spec.name]
        out = value.reshape([value.shape[axis] for axis in kept]) == 0
        if len(axes) > 1 and axes[-1] == axes[-2]:
            axes, out = axes[:-1], out.all(axis=-1)
        if len(axes) > 1 or (axes and axes != ("batch",)):
            found.append((axes, out))
    return found


def _another(value: Array) -> Array:
    """Return values of which none is the same, within the range that is there."""
    if value.dtype.kind == "b":
        return ~value
    if value.dtype.kind == "f":
        return np.asarray(1 - value, value.dtype)
    return np.where(value == value.min(), value.max(), value.min())
