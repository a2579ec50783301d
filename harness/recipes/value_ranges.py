"""The values that an input may hold, by its kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.core.case import TensorSpec

VALUE_RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "tokens": (0.0, math.inf),
        "segments": (0.0, math.inf),
        "mask": (0.0, 1.0),
        "image": (-1.0, 1.0),  # the range of diffusers' input of a VAE
        "hint": (0.0, 1.0),
    }
)
"""The smallest and the largest value of each kind of input. A kind that is not listed
has no limits."""

_SLACK: Final = 1e-3
"""Rounding error that is allowed, for example after a picture was resized."""


def beyond(spec: TensorSpec, low: float, high: float) -> str:
    """Return a message if values from `low` to `high` leave an input's range, or "".

    >>> hint = TensorSpec(name="controlnet_cond", shape=("batch",), draw="hint")
    >>> beyond(hint, 0.0, 255.0)
    "'controlnet_cond' holds values from 0 to 1, and is given 0 to 255"
    >>> beyond(hint, 0.0, 1.0)
    ''
    """
    least, most = VALUE_RANGES.get(spec.draw, (-math.inf, math.inf))
    # NaN passes here: both comparisons are false. It is judged in the outputs.
    if not (low < least - _SLACK or high > most + _SLACK):
        return ""
    span = f"from {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
    return f"{spec.name!r} holds values {span}, and is given {low:g} to {high:g}"
