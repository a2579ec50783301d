"""Convert inputs to the names and dtypes of a foreign model, and rename its outputs.

Drawn inputs are converted only where no number changes: integers to another width, a
whole number to a float, one timestep to a scalar, or to one for each item where the
file declares its axis as the batch of another input. Only values for float16 inputs are
rounded, as in every other use of such a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.measure.name_map import Fed, Names


def fed(names: Names, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the file's inputs, made from the recipe's.

    Raises:
        StageError: A value cannot be given in the file's dtype or shape.

    """
    named = sizes_of_axes((one.shape, given[one.given].shape) for one in names.inputs)
    return {
        one.name: _repeated(one, _shaped(one, _kind(one, given[one.given])), named)
        for one in names.inputs
    }


def sizes_of_axes(
    sides: Iterable[tuple[Sequence[int | str] | None, Sequence[int]]],
) -> dict[str, int]:
    """Return the size of each axis that a file names, where its inputs agree on it.

    `sides` has the shape of each input in the file, and that of the value that is fed.
    A value with one item serves any number of them, so a size of 1 does not count
    beside another.
    """
    found: dict[str, set[int]] = {}
    for declared, actual in sides:
        if declared is None or len(declared) != len(actual):
            continue
        for name, size in zip(declared, actual, strict=True):
            if isinstance(name, str) and re.search(r"\w", name):
                found.setdefault(name, set()).add(size)
    counted = {name: sizes - {1} or sizes for name, sizes in found.items()}
    return {name: min(sizes) for name, sizes in counted.items() if len(sizes) == 1}


def _repeated(one: Fed, value: np.ndarray, named: Mapping[str, int]) -> np.ndarray:
    """Return a value with one item repeated along each axis that the file names.

    A number that serves a whole batch in PyTorch is [1]. A file that declares [batch]
    may read as many items as its other inputs have.
    """
    if one.shape is None or len(one.shape) != value.ndim:
        return value
    wanted = tuple(
        named.get(name, size) if isinstance(name, str) and size == 1 else size
        for name, size in zip(one.shape, value.shape, strict=True)
    )
    if wanted == value.shape:
        return value
    return np.ascontiguousarray(np.broadcast_to(value, wanted))


def read(names: Names, made: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a file's outputs by the recipe's names; others are left out."""
    return {known: made[name] for name, known in names.compared.items() if name in made}


def _kind(one: Fed, value: np.ndarray) -> np.ndarray:
    if not one.dtype or value.dtype == one.dtype:
        return value
    if one.dtype in {"bfloat16", "string"}:
        _refuse(one, f"is {one.dtype}, which cannot be fed", Outcome.DTYPE)
    cast = value.astype(one.dtype)
    rounds = value.dtype.kind == "f" and cast.dtype.kind == "f"
    if not rounds and not np.array_equal(cast.astype(value.dtype), value):
        wrong = value.reshape(-1)[(cast.astype(value.dtype) != value).reshape(-1)][0]
        _refuse(one, f"is {one.dtype}, which does not hold {wrong}", Outcome.DTYPE)
    return cast


def _shaped(one: Fed, value: np.ndarray) -> np.ndarray:
    if one.shape is None:
        return value
    equal = value.size > 0 and (value == value.reshape(-1)[0]).all()
    if value.ndim == 1 and equal:  # a timestep: one for all samples, or one for each
        if not one.shape:
            return value[:1].reshape(())
        size = one.shape[0]
        if len(one.shape) == 1 and isinstance(size, int):
            return np.full(size, value[0], dtype=value.dtype)
    fits = len(one.shape) == value.ndim and all(
        size == actual
        for size, actual in zip(one.shape, value.shape, strict=False)
        if isinstance(size, int)
    )
    if not fits:
        sizes = list(one.shape)
        _refuse(one, f"is {sizes} in the file, not {list(value.shape)}", Outcome.SHAPE)
    return value


def _refuse(one: Fed, what: str, outcome: Outcome) -> None:
    msg = f"input {one.name!r}, fed from {one.given!r}, {what}."
    raise StageError(msg, outcome=outcome)
