"""Inputs of flow-matching pipelines, such as Stable Diffusion 3 and Flux."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Source, TensorSpec
from harness.recipes.configuration import read_object
from harness.recipes.types import Rng, normal

if TYPE_CHECKING:
    import numpy as np

STEPS = (1.0, 0.7, 0.35, 0.02)
"""Shares of noise that realistic samples step through: all, most, some, the last."""

APART = 0.97
"""Ratio of the noise share of an item to that of the item before it. A pipeline gives
all items the same share. Different shares reveal a runtime that exchanges items."""

TIMESTEPS = 1000
"""Number of training timesteps: a timestep is its share of noise times this."""


def texts(config: Mapping[str, Any]) -> tuple[TensorSpec, TensorSpec]:
    """Return the specs of a prompt's hidden states and of its pooled output."""
    width, pooled = config["joint_attention_dim"], config["pooled_projection_dim"]
    return (
        normal("encoder_hidden_states", "batch", "text_tokens", width),
        normal("pooled_projections", "batch", pooled),
    )


def sigmas(source: Source, batch: int, step: int) -> np.ndarray:
    """Return the noise share of each item, shifted as the scheduler shifts it."""
    import numpy as np

    path = source.path / "scheduler" / "scheduler_config.json"
    config = read_object(path) if path.is_file() else {}
    shift = float(config.get("shift", 1.0))
    shares = STEPS[step % len(STEPS)] * APART ** np.arange(batch)
    return np.asarray(shift * shares / (1.0 + (shift - 1.0) * shares))


def noisy(shape: tuple[int, ...], shares: np.ndarray, rng: Rng) -> np.ndarray:
    """Return latents on the straight line from a clean draw to noise, float32."""
    import numpy as np

    clean, noise = rng.standard_normal((2, *shape), dtype=np.float32)
    share = shares.reshape(-1, *(1,) * (len(shape) - 1)).astype(np.float32)
    return np.asarray((1.0 - share) * clean + share * noise)
