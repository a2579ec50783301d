"""The MMDiT of Stable Diffusion 3, where text and picture attend to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.case import Component, TensorSpec
from harness.recipes.diffusion.flow_matching import TIMESTEPS, noisy, sigmas, texts
from harness.recipes.diffusion.transformer_dit import latents, predicted
from harness.recipes.types import Drawn, Rng, Signature, Sizes

CLIP_TOKENS = 77
"""Number of text tokens that come from CLIP; T5's tokens follow."""

T5_STD = 0.2
"""Approximate standard deviation of T5-XXL's normalised states; CLIP's is about 1."""


def signature(config: Mapping[str, Any]) -> Signature:
    """Return the signature: latents, text, pooled text, timesteps to ``out_sample``."""
    inputs = (
        latents(config),
        *texts(config),
        TensorSpec(name="timestep", shape=("batch",), draw="timestep"),
    )
    return inputs, (predicted(config),)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw latents between noise and picture, and states of three text encoders.

    CLIP's two hidden states are side by side, with the width of the pooled outputs.
    Zeros fill them up to T5's width. T5's tokens follow.
    """
    import numpy as np

    noised, text, pooled, _ = (spec.bind(shapes) for spec in component.inputs)
    shares = sigmas(component.source, shapes["batch"], step)
    states = rng.standard_normal(text, dtype=np.float32)
    states[:, :CLIP_TOKENS, pooled[-1] :] = 0.0
    states[:, CLIP_TOKENS:] *= np.float32(T5_STD)
    return {
        "hidden_states": noisy(noised, shares, rng),
        "encoder_hidden_states": states,
        "pooled_projections": rng.standard_normal(pooled, dtype=np.float32),
        "timestep": (TIMESTEPS * shares).astype(np.float32),
    }
