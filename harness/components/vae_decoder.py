"""VAE decoder: latents to a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.components import vae
from harness.components.checkpoint import load_network, option, read_config
from harness.spec import Component, Source, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch


multiples = vae.multiples


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``latent_sample``, already divided by the scaling factor, to ``sample``."""
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

    network = load_network(component.source, "vae", vae.network)
    del network.encoder, network.quant_conv
    return Decoder(network).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Unit-variance latents divided by the checkpoint's scaling factor."""
    import numpy as np

    del step
    factor = read_config(component.source, "vae").get("scaling_factor", 0.18215)
    latents = rng.standard_normal(component.inputs[0].bind(shapes), dtype=np.float32)
    return {"latent_sample": latents / np.float32(factor)}
