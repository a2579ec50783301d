"""PixArt: DiT blocks that also attend to T5's states, padding left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import load_network, read_config
from harness.recipes.diffusion.transformer_dit import latents, predicted, steps
from harness.recipes.wrapper import first

if TYPE_CHECKING:
    import numpy as np
    import torch

SIZED_FROM = 128
"""Latent size at which PixArt embeds size and shape where its config does not say."""

SIZES = ((1024.0, 1024.0), (832.0, 1216.0), (1216.0, 832.0), (512.0, 2048.0))
"""Heights and widths that PixArt was trained on; a batch goes through them."""


def _sized(config: Mapping[str, Any]) -> bool:
    """Whether the picture's size and shape are inputs, as the class decides it."""
    told = config.get("use_additional_conditions")
    return bool(config["sample_size"] == SIZED_FROM if told is None else told)


def signature(
    config: Mapping[str, Any],
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Latents, text, a timestep, the text's mask, maybe sizes to ``out_sample``."""
    width = config.get("caption_channels") or config["cross_attention_dim"]
    inputs = [
        latents(config),
        TensorSpec(
            name="encoder_hidden_states",
            shape=("batch", "text_tokens", width),
            draw="normal",
        ),
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


def network() -> Any:
    """Return the class, imported late."""
    from diffusers import PixArtTransformer2DModel

    return PixArtTransformer2DModel


def build(source: Source) -> torch.nn.Module:
    """Return the network behind a ``forward`` of its four inputs, or six."""
    inputs, _ = signature(read_config(source, "transformer"))
    loaded = load_network(source, "transformer", network)
    return first(loaded, inputs, _arguments)


def _arguments(named: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return what the class is called with: sizes are in a dictionary of their own."""
    sizes = {name: named.pop(name, None) for name in ("resolution", "aspect_ratio")}
    # The class views the mask in the latents' batch, and dynamo cannot know that the
    # two are equal: said here, it changes nothing.
    batch = named["hidden_states"].shape[0]
    mask = named["encoder_attention_mask"].expand(batch, -1)
    return {**named, "encoder_attention_mask": mask, "added_cond_kwargs": sizes}


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Unit-variance latents, and prompts of different lengths with their padding."""
    import numpy as np

    batch, tokens = shapes["batch"], shapes["text_tokens"]
    noise, text = (spec.bind(shapes) for spec in component.inputs[:2])
    # Of one sentence's length and fewer, no two the same, never none.
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
