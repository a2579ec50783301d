"""VAE decoder: latents to a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import option, read_config
from harness.recipes.diffusion import vae

if TYPE_CHECKING:
    import numpy as np
    import torch


multiples = vae.multiples


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``latent_sample``, scaled back and shifted already, to ``sample``."""
    option(options, ())
    config = read_config(source, "vae")
    latent = TensorSpec(
        name="latent_sample",
        shape=("batch", config["latent_channels"], "height", "width"),
        draw="normal",
    )
    picture = vae.image(config, "sample", "out_channels")
    return (latent,), (replace(picture, draw=""),)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the decoder behind ``forward(latent_sample)``."""
    import torch

    del attention

    class Decoder(torch.nn.Module):
        """Latents in, a picture in about [-1, 1] out."""

        def __init__(self, network: torch.nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, latent_sample: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.network.decode(latent_sample, return_dict=False)[0]
            return out

    return Decoder(vae.load_half(component.source, "encoder", "quant_conv")).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Unit-variance latents as the pipeline scales them for the decoder."""
    import numpy as np

    del step
    latents = rng.standard_normal(component.inputs[0].bind(shapes), dtype=np.float32)
    config = read_config(component.source, "vae")
    return {"latent_sample": vae.scaled(latents, config)}
