"""Draw inputs between the profiles; each kind of input has parameters for this.

`PARAMETERS` is the only place that states the range of each parameter. `parity tune`
and `harness.strategies` draw from it.
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
class InputParameter:
    """One parameter of the draw of an input.

    Attributes:
        low: The smallest value, which can be drawn too.
        high: The largest value, which can be drawn too.
        whole: Whether it is a whole number.
        even_in_decades: Whether all decades are equally likely.

    """

    low: float
    high: float
    whole: bool = False
    even_in_decades: bool = False

    def at(self, share: float) -> float:
        """Return the value at a share of the range; the share is from 0 to 1.

        >>> InputParameter(low=0.01, high=100.0, even_in_decades=True).at(0.5)
        1.0
        >>> InputParameter(low=0, high=999, whole=True).at(1.0)
        999
        """
        if self.even_in_decades:
            low, high = math.log10(self.low), math.log10(self.high)
            value = 10.0 ** (low + share * (high - low))
            return min(max(round(value, 12), self.low), self.high)
        value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else value


# The mean is at most 100 and a thousand standard deviations, as in the profile
# large-mean. Beyond that float32 itself has no digit left.
_MEAN_LIMIT: Final = 100.0
_SCALE = InputParameter(low=1e-3, high=10.0, even_in_decades=True)
_OFFSET = InputParameter(low=1e-2, high=1e3, even_in_decades=True)

PARAMETERS: Final[Mapping[str, Mapping[str, InputParameter]]] = MappingProxyType(
    {
        # The standard deviation, and the mean in standard deviations.
        "normal": {"scale": _SCALE, "offset": _OFFSET},
        "image": {
            "contrast": InputParameter(low=1e-3, high=1.0, even_in_decades=True),
            "brightness": InputParameter(low=-1.0, high=1.0),
        },
        # The share of pixels that are lines.
        "hint": {"density": InputParameter(low=0.0, high=1.0)},
        "timestep": {"step": InputParameter(low=0, high=999, whole=True)},
        # The side of a picture in pixels.
        "sizes": {"side": InputParameter(low=0, high=4096, whole=True)},
        # The share of tokens before the padding, and that of special ones among them.
        "tokens": {
            "filled": InputParameter(low=0.0, high=1.0),
            "special": InputParameter(low=0.0, high=1.0),
        },
        # The share of tokens that are read, and that of tokens of the first type.
        "mask": {"read": InputParameter(low=0.0, high=1.0)},
        "segments": {"first": InputParameter(low=0.0, high=1.0)},
    }
)
"""The parameters of each kind of input."""


def parameters_of(component: Component) -> dict[str, InputParameter]:
    """Return the parameters of a component's inputs, as ``input.parameter``."""
    return {
        f"{spec.name}.{name}": parameter
        for spec in component.inputs
        for name, parameter in PARAMETERS.get(spec.draw, {}).items()
    }


def vary(
    component: Component,
    spec: TensorSpec,
    shape: tuple[int, ...],
    values: Mapping[str, float],
    rng: np.random.Generator,
) -> Array:
    """Return one input, drawn by its parameters.

    Raises:
        SpecError: A parameter is missing or out of its range.

    """
    given = {}
    for name, parameter in PARAMETERS.get(spec.draw, {}).items():
        value = values.get(f"{spec.name}.{name}")
        if value is None or not parameter.low <= value <= parameter.high:
            msg = (
                f"{component.name}: {spec.name}.{name} must be from "
                f"{parameter.low:g} to {parameter.high:g}, got {value}."
            )
            raise SpecError(msg)
        given[name] = value
    if spec.draw == "tokens":
        ids = vocabulary(component.source)
        drawn = _tokens(shape, rng, vocabulary=ids, **given)
    elif spec.draw == "mask":
        # Items differ in length by one, and each reads at least one token.
        items = np.arange(math.prod(shape[:-1])).reshape(*shape[:-1], 1)
        read = round(given["read"] * shape[-1]) - items
        drawn = np.arange(shape[-1]) < np.maximum(1, read)
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
    """Return hints of which no two are equal, even if all are empty or full."""
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
    # The first word makes all items different, whatever else is drawn.
    drawn[:, 0] = (rng.integers(0, end - 1) + np.arange(batch)) % (end - 1)
    ids[:, 1 : 1 + words] = drawn
    return ids
