"""Pictures that recipes draw in place of a pipeline's input picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.recipes.types import Rng

if TYPE_CHECKING:
    import numpy as np

EDGE = 0.6
"""Gradient above which a pixel of a drawn hint is an edge, as a share of the picture's
largest gradient. So a larger picture, with smaller gradients, has the same edges."""


def smooth_pictures(shape: tuple[int, ...], rng: Rng) -> np.ndarray:
    """Return pictures ``[batch, channels, height, width]`` in [-1, 1], float32.

    A picture has a few soft-edged discs on a plane, so it has large areas and some
    contours.
    """
    import numpy as np

    batch, channels, height, width = shape
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    out = np.empty(shape, dtype=np.float32)
    for item in range(batch):
        picture = np.zeros((channels, height, width))
        for _ in range(4):
            row, column, radius = rng.uniform(0.15, 0.85, size=3)
            distance = np.hypot(rows - row, columns - column) - radius / 3
            colour = rng.uniform(-1.5, 1.5, size=(channels, 1, 1))
            picture += colour / (1 + np.exp(40 * distance))
        out[item] = np.tanh(picture)
    return out


def edges(shape: tuple[int, ...], rng: Rng) -> np.ndarray:
    """Return a Canny-like hint ``[batch, 3, height, width]``: 0 or 1, float32."""
    import numpy as np

    picture = smooth_pictures((shape[0], 1, *shape[2:]), rng)
    slope = np.abs(np.diff(picture, axis=-1, prepend=picture[..., :1]))
    slope += np.abs(np.diff(picture, axis=-2, prepend=picture[..., :1, :]))
    steepest = slope.max(axis=(1, 2, 3), keepdims=True)
    lines = (slope > EDGE * steepest).astype(np.float32)
    return np.ascontiguousarray(np.broadcast_to(lines, shape))
