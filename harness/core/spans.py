"""The values that an input may hold, by what it is drawn as: a contract's last word."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.core.case import TensorSpec

SPANS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "tokens": (0.0, math.inf),
        "segments": (0.0, math.inf),
        "mask": (0.0, 1.0),
        "image": (-1.0, 1.0),  # as diffusers hands pictures to a VAE
        "hint": (0.0, 1.0),
    }
)
"""Kind of input to the least and the most it holds; others hold anything."""

_SLACK: Final = 1e-3
"""Of rounding, as where a picture was resized."""


def beyond(spec: TensorSpec, low: float, high: float) -> str:
    """Return in words that an input's values leave its span; empty if they do not.

    >>> hint = TensorSpec(name="controlnet_cond", shape=("batch",), draw="hint")
    >>> beyond(hint, 0.0, 255.0)
    "'controlnet_cond' holds values from 0 to 1, and is given 0 to 255"
    >>> beyond(hint, 0.0, 1.0)
    ''
    """
    least, most = SPANS.get(spec.draw, (-math.inf, math.inf))
    # What is not a number is judged where it comes out.
    if not (low < least - _SLACK or high > most + _SLACK):
        return ""
    span = f"from {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
    return f"{spec.name!r} holds values {span}, and is given {low:g} to {high:g}"
