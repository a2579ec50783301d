"""Inputs as a flow-matching pipeline makes them: Stable Diffusion 3, Flux."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.core.case import Source

if TYPE_CHECKING:
    import numpy as np

STEPS = (1.0, 0.7, 0.35, 0.02)
"""Shares of noise that realistic samples step through: all, most, some, the last."""

APART = 0.97
"""What each further item of a batch has of the noise of the item before. A pipeline
gives all the same; apart, a runtime that mixes them up is caught."""

TIMESTEPS = 1000
"""Training timesteps: a timestep is this many times its share of noise."""


def sigmas(source: Source, batch: int, step: int) -> np.ndarray:
    """Return the share of noise of each item, shifted as the scheduler shifts it."""
    import numpy as np

    path = source.path / "scheduler" / "scheduler_config.json"
    config: dict[str, Any] = {}
    if path.is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
    shift = float(config.get("shift", 1.0))
    shares = STEPS[step % len(STEPS)] * APART ** np.arange(batch)
    return np.asarray(shift * shares / (1.0 + (shift - 1.0) * shares))


def noisy(
    shape: tuple[int, ...], shares: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return latents on the straight line from a clean draw to noise, float32."""
    import numpy as np

    clean, noise = rng.standard_normal((2, *shape), dtype=np.float32)
    share = shares.reshape(-1, *(1,) * (len(shape) - 1)).astype(np.float32)
    return np.asarray((1.0 - share) * clean + share * noise)
