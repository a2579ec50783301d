"""VAE encoder: it maps a picture to latents or their distribution, without sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    del attention
    tiny = "Tiny" in vae.class_name(read_config(component.source, "vae"))
    parameters = bool(dict(component.options).get("parameters", False))

    def answer(encoded: Any) -> Any:
        if tiny:  # it has no distribution
            return encoded
        return encoded.parameters if parameters else encoded.mode()

    without = ("decoder", "post_quant_conv")
    return vae.half(component.source, "encode", without, answer)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw pictures with large areas and soft contours."""
    del step
    return {"sample": smooth_pictures(component.inputs[0].bind(shapes), rng)}
