"""Draw inputs between the profiles: each kind of input has knobs that say how.

The knobs are a table, from which `tuning` also draws: a knob's range is stated once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.core.case import Component, TensorSpec
from harness.core.errors import SpecError
from harness.recipes.checkpoint import vocabulary

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One number that an input is drawn by.

    Attributes:
        low: Least.
        high: Most; both may be taken.
        whole: Whether it is a whole number.
        even_in_decades: Whether each decade of it is as likely as any other.

    """

    low: float
    high: float
    whole: bool = False
    even_in_decades: bool = False


# A mean of at most 100 and a thousand standard deviations, as of the profile
# large-mean: beyond that float32 itself has no digit left.
_MEAN_LIMIT: Final = 100.0
_SCALE = Knob(low=1e-3, high=10.0, even_in_decades=True)
_OFFSET = Knob(low=1e-2, high=1e3, even_in_decades=True)

KNOBS: Final[Mapping[str, Mapping[str, Knob]]] = MappingProxyType(
    {
        # Standard deviation, and the mean in standard deviations.
        "normal": {"scale": _SCALE, "offset": _OFFSET},
        "image": {
            "contrast": Knob(low=1e-3, high=1.0, even_in_decades=True),
            "brightness": Knob(low=-1.0, high=1.0),
        },
        # Share of the pixels that are lines.
        "hint": {"density": Knob(low=0.0, high=1.0)},
        "timestep": {"step": Knob(low=0, high=999, whole=True)},
        # In pixels.
        "sizes": {"side": Knob(low=0, high=4096, whole=True)},
        # Share of the tokens before the padding, and how many of those are special.
        "tokens": {
            "filled": Knob(low=0.0, high=1.0),
            "special": Knob(low=0.0, high=1.0),
        },
        # Share of the tokens that are read, and of those of the first type.
        "mask": {"read": Knob(low=0.0, high=1.0)},
        "segments": {"first": Knob(low=0.0, high=1.0)},
    }
)
"""Kind of input to its knobs."""


def knobs_of(component: Component) -> dict[str, Knob]:
    """Return the knobs of a component's inputs, as ``input.knob``."""
    return {
        f"{spec.name}.{name}": knob
        for spec in component.inputs
        for name, knob in KNOBS.get(spec.draw, {}).items()
    }


def vary(
    component: Component,
    spec: TensorSpec,
    shape: tuple[int, ...],
    knobs: Mapping[str, float],
    rng: np.random.Generator,
) -> Array:
    """Return one input as its knobs say.

    Raises:
        SpecError: A knob of it is not given, or is out of its range.

    """
    given = {}
    for name, knob in KNOBS.get(spec.draw, {}).items():
        value = knobs.get(f"{spec.name}.{name}")
        if value is None or not knob.low <= value <= knob.high:
            msg = (
                f"{component.name}: {spec.name}.{name} must be from {knob.low:g} to "
                f"{knob.high:g}, got {value}."
            )
            raise SpecError(msg)
        given[name] = value
    if spec.draw == "tokens":
        ids = vocabulary(component.source)
        drawn = _tokens(shape, rng, vocabulary=ids, **given)
    elif spec.draw == "mask":
        # Items differ in length by one, and each reads a token at least.
        read = round(given["read"] * shape[1]) - np.arange(shape[0])[:, None]
        drawn = np.arange(shape[1]) < np.maximum(1, read)
    elif spec.draw == "segments":
        drawn = np.arange(shape[1]) >= round(given["first"] * shape[1])
        drawn = np.broadcast_to(drawn, shape)
    elif spec.draw == "timestep":
        drawn = (int(given["step"]) + 499 * np.arange(shape[0] if shape else 1)) % 1000
        drawn = drawn.reshape(shape)
    elif spec.draw == "sizes":
        drawn = int(given["side"]) + np.arange(math.prod(shape)).reshape(shape)
    elif spec.draw == "image":
        noise = rng.normal(given["brightness"], given["contrast"], size=shape)
        drawn = np.clip(noise, -1.0, 1.0)
    elif spec.draw == "hint":
        drawn = rng.random(size=shape) < given["density"]
        drawn = _marked(drawn.astype(np.float32))
    else:
        mean = min(given["scale"] * given["offset"], _MEAN_LIMIT)
        drawn = rng.normal(mean, given["scale"], size=shape)
    return drawn.astype(spec.dtype)


def _marked(hint: Array) -> Array:
    """Return hints of which no two are equal, though all be empty or full."""
    flat = hint.reshape(hint.shape[0], -1)
    for item in range(1, len(flat)):
        flat[item, item] = 1.0 - flat[0, item]
    return hint


def _tokens(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    vocabulary: int,
    filled: float,
    special: float,
) -> Array:
    """Return prompts ``[batch, tokens]`` between CLIP's first and padding token."""
    end = vocabulary - 1
    batch, tokens = shape
    ids = np.full(shape, end)
    ids[:, 0] = end - 1
    words = max(1, round(filled * (tokens - 2)))
    drawn = rng.integers(0, end - 1, size=(batch, words))
    drawn[rng.random(size=drawn.shape) < special] = end
    # The first word tells the items apart, whatever else is drawn.
    drawn[:, 0] = (rng.integers(0, end - 1) + np.arange(batch)) % (end - 1)
    ids[:, 1 : 1 + words] = drawn
    return ids
