"""Rounding to bfloat16, which numpy does not have."""

from __future__ import annotations

import numpy as np

BFLOAT16_BITS = np.uint32(0xFFFF0000)
"""Mask of the bits of a float32 that bfloat16 keeps."""


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return values in float32, as bfloat16 rounds them to nearest, ties to even."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) & BFLOAT16_BITS).view(np.float32)
