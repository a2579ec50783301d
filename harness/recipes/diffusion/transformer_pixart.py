"""PixArt: DiT blocks that also attend to T5's states, without padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, TensorSpec
from harness.recipes.diffusion.transformer_dit import latents, predicted, steps
from harness.recipes.types import Drawn, Rng, Signature, Sizes, normal

if TYPE_CHECKING:
    import torch

SIZED_FROM = 128
"""Latent size from which PixArt embeds size and shape, if its config has no setting."""

SIZES = ((1024.0, 1024.0), (832.0, 1216.0), (1216.0, 832.0), (512.0, 2048.0))
"""Heights and widths that PixArt was trained on; a batch cycles through them."""


def _sized(config: Mapping[str, Any]) -> bool:
    """Whether the picture's size and shape are inputs, by the rule of the class."""
    told = config.get("use_additional_conditions")
    return bool(config.get("sample_size") == SIZED_FROM if told is None else told)


def signature(config: Mapping[str, Any]) -> Signature:
    """Return the signature: latents, text, timestep, mask, sizes to ``out_sample``."""
    width = config.get("caption_channels") or config["cross_attention_dim"]
    inputs = [
        latents(config),
        normal("encoder_hidden_states", "batch", "text_tokens", width),
        TensorSpec(name="timestep", shape=("batch",), dtype="int32", draw="timestep"),
        TensorSpec(
            name="encoder_attention_mask",
            shape=("batch", "text_tokens"),
            draw="pipeline",
        ),
    ]
    if _sized(config):
        inputs += [
            TensorSpec(name="resolution", shape=("batch", 2), draw="pipeline"),
            TensorSpec(name="aspect_ratio", shape=("batch", 1), draw="pipeline"),
        ]
    return tuple(inputs), (predicted(config),)


def arguments(named: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the arguments of the class; sizes are in a separate dictionary."""
    sizes = {name: named.pop(name, None) for name in ("resolution", "aspect_ratio")}
    # The class views the mask in the latents' batch, and dynamo cannot know that both
    # batches are equal. This line tells it, and changes nothing else.
    batch = named["hidden_states"].shape[0]
    mask = named["encoder_attention_mask"].expand(batch, -1)
    return {**named, "encoder_attention_mask": mask, "added_cond_kwargs": sizes}


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw unit-variance latents, and padded prompts of different lengths."""
    import numpy as np

    batch, tokens = shapes["batch"], shapes["text_tokens"]
    noise, text = (spec.bind(shapes) for spec in component.inputs[:2])
    # Lengths from one sentence's downwards, no two the same, and never 0.
    words = (tokens - 1 - step - np.arange(batch)) % tokens + 1
    sizes = np.array([SIZES[item % len(SIZES)] for item in range(batch)])
    sizes += 8.0 * (np.arange(batch) // len(SIZES))[:, None]
    drawn = {
        "hidden_states": rng.standard_normal(noise, dtype=np.float32),
        "encoder_hidden_states": rng.standard_normal(text, dtype=np.float32),
        "timestep": steps(batch, step),
        "encoder_attention_mask": np.arange(tokens)[None, :] < words[:, None],
        "resolution": sizes,
        "aspect_ratio": sizes[:, :1] / sizes[:, 1:],
    }
    return {spec.name: drawn[spec.name].astype(spec.dtype) for spec in component.inputs}
