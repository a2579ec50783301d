"""VAE encoder: it maps a picture to latents or their distribution, without sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import option, read_config
from harness.recipes.diffusion import vae
from harness.recipes.diffusion.pictures import smooth_pictures
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import torch


multiples = vae.multiples


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: ``sample`` in [-1, 1] to ``latent_sample``.

    With the option ``parameters`` the output is the distribution's mean and log
    variance, ``[batch, 2 * channels, height, width]``. Without it, the output is the
    mode. AutoencoderTiny has no distribution, so its output is the latents.
    """
    config = read_config(source, "vae")
    tiny = vae.class_name(config) == "AutoencoderTiny"
    option(options, () if tiny else ("parameters",))
    channels = config["latent_channels"]
    name = "latent_sample"
    if options.get("parameters"):
        name, channels = "latent_parameters", 2 * channels
    out = TensorSpec(name=name, shape=("batch", channels, "height", "width"))
    return (vae.image(config, "sample", "in_channels"),), (out,)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder behind ``forward(sample)``."""
    import torch

    del attention

    class Encoder(torch.nn.Module):
        """The encoder with a picture as input and the mode or parameters as output."""

        def __init__(self, network: torch.nn.Module, *, parameters: bool) -> None:
            super().__init__()
            self.network = network
            self.parameters_out = parameters

        def forward(self, sample: torch.Tensor) -> torch.Tensor:
            encoded = self.network.encode(sample, return_dict=False)[0]
            if isinstance(encoded, torch.Tensor):
                return encoded
            out: torch.Tensor = (
                encoded.parameters if self.parameters_out else encoded.mode()
            )
            return out

    network = vae.load_half(component.source, "decoder", "post_quant_conv")
    parameters = bool(dict(component.options).get("parameters", False))
    return Encoder(network, parameters=parameters).eval()


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw pictures with large areas and soft contours."""
    del step
    return {"sample": smooth_pictures(component.inputs[0].bind(shapes), rng)}
