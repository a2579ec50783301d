"""Flux: packed latents, positions for each token, one velocity out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import load_network, read_config
from harness.recipes.diffusion.flow_matching import noisy, sigmas
from harness.recipes.wrapper import first

if TYPE_CHECKING:
    import numpy as np
    import torch

GUIDANCE = 3.5
"""Guidance scale that FluxPipeline has where nobody gives one."""


def signature(
    config: Mapping[str, Any],
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Packed latents, text, conditions and positions to ``out_sample``, packed.

    ``image_tokens`` counts squares of two by two latents. Positions have no batch;
    ``guidance`` is there where the configuration embeds it.
    """
    inputs = [
        TensorSpec(
            name="hidden_states",
            shape=("batch", "image_tokens", config["in_channels"]),
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
        TensorSpec(name="timestep", shape=("batch",), draw="pipeline"),
        TensorSpec(name="img_ids", shape=("image_tokens", 3), draw="pipeline"),
        TensorSpec(name="txt_ids", shape=("text_tokens", 3), draw="pipeline"),
    ]
    if config.get("guidance_embeds"):
        inputs.append(TensorSpec(name="guidance", shape=("batch",), draw="pipeline"))
    channels = config.get("out_channels") or config["in_channels"]
    out = ("batch", "image_tokens", channels)
    return tuple(inputs), (TensorSpec(name="out_sample", shape=out),)


def network() -> Any:
    """Return the class, imported late."""
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel


def build(source: Source) -> torch.nn.Module:
    """Return the network behind a ``forward`` of its six inputs, or seven."""
    inputs, _ = signature(read_config(source, "transformer"))
    return first(load_network(source, "transformer", network), inputs)


def grid_of(tokens: int) -> tuple[int, int]:
    """Return rows and columns of `tokens`, as near a square as they go, wide first."""
    rows = next(r for r in range(math.isqrt(tokens), 0, -1) if tokens % r == 0)
    return rows, tokens // rows


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Latents between noise and picture, prompts, and where each token stands.

    The network multiplies timestep and guidance by a thousand itself.
    """
    import numpy as np

    batch, tokens = shapes["batch"], shapes["image_tokens"]
    shares = sigmas(component.source, batch, step)
    rows, columns = grid_of(tokens)
    places = np.zeros((rows, columns, 3), dtype=np.float32)
    places[..., 1] = np.arange(rows)[:, None]
    places[..., 2] = np.arange(columns)[None, :]
    latents, text, pooled = (spec.bind(shapes) for spec in component.inputs[:3])
    drawn = {
        "hidden_states": noisy(latents, shares, rng),
        "encoder_hidden_states": rng.standard_normal(text, dtype=np.float32),
        "pooled_projections": rng.standard_normal(pooled, dtype=np.float32),
        "timestep": shares.astype(np.float32),
        "img_ids": places.reshape(tokens, 3),
        "txt_ids": np.zeros((shapes["text_tokens"], 3), dtype=np.float32),
        "guidance": (GUIDANCE + np.arange(batch)).astype(np.float32),
    }
    return {spec.name: drawn[spec.name] for spec in component.inputs}
