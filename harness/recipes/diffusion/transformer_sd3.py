"""The MMDiT of Stable Diffusion 3: text and picture attend to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import load_network, read_config
from harness.recipes.diffusion.flow_matching import TIMESTEPS, noisy, sigmas
from harness.recipes.wrapper import first

if TYPE_CHECKING:
    import numpy as np
    import torch

CLIP_TOKENS = 77
"""Of the text, how many come from CLIP; T5's follow."""

T5_STD = 0.2
"""About the standard deviation of T5-XXL's normalised states; CLIP's is about 1."""


def signature(
    config: Mapping[str, Any],
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Latents, text, pooled text and a timestep an item to ``out_sample``."""
    inputs = (
        TensorSpec(
            name="hidden_states",
            shape=("batch", config["in_channels"], "height", "width"),
            draw="normal",
        ),
        TensorSpec(
            name="encoder_hidden_states",
            shape=("batch", "text_tokens", config["joint_attention_dim"]),
            draw="normal",
        ),
        TensorSpec(
            name="pooled_projections",
            shape=("batch", config["pooled_projection_dim"]),
            draw="normal",
        ),
        TensorSpec(name="timestep", shape=("batch",), draw="timestep"),
    )
    # Null where a configuration leaves the output as wide as the input.
    channels = config.get("out_channels") or config["in_channels"]
    out = ("batch", channels, "height", "width")
    return inputs, (TensorSpec(name="out_sample", shape=out),)


def network() -> Any:
    """Return the class, imported late."""
    from diffusers import SD3Transformer2DModel

    return SD3Transformer2DModel


def build(source: Source) -> torch.nn.Module:
    """Return the network behind a ``forward`` of its four inputs."""
    inputs, _ = signature(read_config(source, "transformer"))
    return first(load_network(source, "transformer", network), inputs)


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Latents between noise and picture, and prompts as three encoders leave them.

    CLIP's two hidden states stand side by side, as wide as the pooled outputs do, and
    zeros fill them up to T5's width; T5's tokens follow.
    """
    import numpy as np

    latents, text, pooled, _ = (spec.bind(shapes) for spec in component.inputs)
    shares = sigmas(component.source, shapes["batch"], step)
    states = rng.standard_normal(text, dtype=np.float32)
    states[:, :CLIP_TOKENS, pooled[-1] :] = 0.0
    states[:, CLIP_TOKENS:] *= np.float32(T5_STD)
    return {
        "hidden_states": noisy(latents, shares, rng),
        "encoder_hidden_states": states,
        "pooled_projections": rng.standard_normal(pooled, dtype=np.float32),
        "timestep": (TIMESTEPS * shares).astype(np.float32),
    }
