"""Flux: its inputs are packed latents and positions, its output is a velocity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.core.case import Component, TensorSpec
from harness.recipes.diffusion.flow_matching import noisy, sigmas, texts
from harness.recipes.types import Drawn, Rng, Signature, Sizes, normal

GUIDANCE = 3.5
"""The default guidance scale of FluxPipeline."""


def signature(config: Mapping[str, Any]) -> Signature:
    """Return the signature: packed latents, text and conditions to ``out_sample``.

    ``out_sample`` is packed too. ``image_tokens`` counts squares of two by two latents.
    Positions are an input without a batch axis. ``guidance`` is an input if the
    configuration embeds it.
    """
    inputs = [
        normal("hidden_states", "batch", "image_tokens", config["in_channels"]),
        *texts(config),
        TensorSpec(name="timestep", shape=("batch",), draw="pipeline"),
        TensorSpec(name="img_ids", shape=("image_tokens", 3), draw="pipeline"),
        TensorSpec(name="txt_ids", shape=("text_tokens", 3), draw="pipeline"),
    ]
    if config.get("guidance_embeds"):
        inputs.append(TensorSpec(name="guidance", shape=("batch",), draw="pipeline"))
    channels = config.get("out_channels") or config["in_channels"]
    out = ("batch", "image_tokens", channels)
    return tuple(inputs), (TensorSpec(name="out_sample", shape=out),)


def grid_of(tokens: int) -> tuple[int, int]:
    """Return rows and columns of `tokens`, as square as possible, never more rows."""
    rows = next(r for r in range(math.isqrt(tokens), 0, -1) if tokens % r == 0)
    return rows, tokens // rows


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw latents between noise and picture, prompts, and positions of tokens.

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
