"""The UNet with a ControlNet: the ControlNet's residuals are inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source
from harness.recipes.checkpoint import load_network, option
from harness.recipes.diffusion import controlnet, unet
from harness.recipes.diffusion.pictures import edges
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes
from harness.recipes.wrapper import first, outputs_of

if TYPE_CHECKING:
    import torch


multiples = unet.multiples


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: UNet inputs and all residuals to ``out_sample``."""
    option(options, ())
    inputs, outputs = unet.signature(source, {})
    steering = controlnet.residuals(controlnet.read_controlnet(source))
    return (*inputs, *steering), outputs


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the UNet behind a ``forward`` of its inputs and the residuals."""
    del attention
    steering = controlnet.residuals(controlnet.read_controlnet(component.source))

    def arguments(named: dict[str, torch.Tensor]) -> dict[str, Any]:
        *down, middle = (named.pop(spec.name) for spec in steering)
        return {
            **unet.arguments(named),
            "down_block_additional_residuals": tuple(down),
            "mid_block_additional_residual": middle,
        }

    loaded = load_network(component.source, unet.UNET, unet.CLASS)
    return first(loaded, component.inputs, arguments)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw inputs of the UNet, and compute the ControlNet's residuals for them."""
    (*_, hint), _ = controlnet.signature(component.source, {})
    drawn = unet.denoising_inputs(component, shapes, step, rng)
    # A ControlNet that was trained with one encoder has fewer inputs than XL's UNet.
    steering = {**drawn, hint.name: edges(hint.bind(shapes), rng)}
    return drawn | outputs_of(controlnet, "controlnet", component.source, steering)
