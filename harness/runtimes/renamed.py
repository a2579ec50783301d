"""Convert inputs to the names and dtypes of a foreign model, and rename its outputs.

Drawn inputs are converted only where no number changes: integers to another width, a
whole number to a float, one timestep to a scalar. Only values for float16 inputs are
rounded, as in every other use of such a file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.measure.name_map import Fed, Names


def fed(names: Names, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the file's inputs, made from the recipe's.

    Raises:
        StageError: A value cannot be given in the file's dtype or shape.

    """
    return {
        one.name: _shaped(one, _kind(one, given[one.given])) for one in names.inputs
    }


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
