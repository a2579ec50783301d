"""Types in the functions of all recipes, and a spec that most recipes use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from harness.core.case import TensorSpec

if TYPE_CHECKING:
    import numpy as np


Options: TypeAlias = Mapping[str, str | int | bool]
"""The options of a component from its suite."""

Signature: TypeAlias = "tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]"
"""The inputs and the outputs, in order."""

Sizes: TypeAlias = Mapping[str, int]
"""Sizes of axes by symbol."""

Rng: TypeAlias = "np.random.Generator"
Drawn: TypeAlias = "dict[str, np.ndarray]"
"""An array for each input, by name."""


def normal(name: str, *shape: int | str) -> TensorSpec:
    """Return the spec of a float32 input; each profile draws it by its own scale."""
    return TensorSpec(name=name, shape=shape, draw="normal")
