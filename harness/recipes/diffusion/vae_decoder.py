"""VAE decoder: it maps latents to a picture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.case import Component, Source
from harness.recipes.checkpoint import option, read_config
from harness.recipes.diffusion import vae
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes, normal

if TYPE_CHECKING:
    import torch


multiples = vae.multiples


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: ``latent_sample``, already scaled back, to ``sample``."""
    option(options, ())
    config = read_config(source, "vae")
    latent = normal(
        "latent_sample", "batch", config["latent_channels"], "height", "width"
    )
    picture = vae.image(config, "sample", "out_channels")
    return (latent,), (replace(picture, draw=""),)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the decoder behind ``forward(latent_sample)``."""
    del attention
    without = ("encoder", "quant_conv")
    return vae.half(component.source, "decode", without, lambda picture: picture)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw unit-variance latents, scaled for the decoder as in the pipeline."""
    import numpy as np

    del step
    latents = rng.standard_normal(component.inputs[0].bind(shapes), dtype=np.float32)
    config = read_config(component.source, "vae")
    return {"latent_sample": vae.scaled(latents, config)}
