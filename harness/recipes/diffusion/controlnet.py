"""ControlNet: it maps a hint to the residuals that steer the UNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import load_network, option, read_config
from harness.recipes.diffusion.pictures import edges
from harness.recipes.diffusion.unet import (
    arguments,
    conditioned_inputs,
    denoising_inputs,
    halvings,
)
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes, normal
from harness.recipes.wrapper import by_name

if TYPE_CHECKING:
    import torch

FOLDER = "controlnet"
CLASS = "ControlNetModel"


def read_controlnet(source: Source, folder: str = FOLDER) -> dict[str, Any]:
    """Return a ControlNet's configuration.

    Raises:
        SuiteError: Its class is another one, which has other inputs and outputs, or
            its blocks differ in their layers.

    """
    config = read_config(source, folder)
    name = str(config.get("_class_name", CLASS))
    if name != CLASS:
        msg = (
            f"{source.path / folder / 'config.json'} is of a {name}, and the recipes "
            f"of ControlNets know {CLASS}, of Stable Diffusion 1 to XL, alone. Take it "
            "out of `components`, or name a recipe of your own by `recipe`."
        )
        raise SuiteError(msg)
    config.whole("layers_per_block")  # of each block as many, or `residuals` is wrong
    return config


def residuals(config: Mapping[str, Any]) -> list[TensorSpec]:
    """Return the residual tensors of a ControlNet of this configuration.

    Stable Diffusion's has thirteen: ``conv_in``, then per block its layers and its
    downsampler, then the middle block.
    """
    channels, layers = config["block_out_channels"], config["layers_per_block"]
    widths = [(channels[0], 0)]
    for depth, width in enumerate(channels):
        widths += [(width, depth)] * layers
        if depth < len(channels) - 1:
            widths.append((width, depth + 1))
    named = [
        (f"down_block_res_sample_{index}", width, depth)
        for index, (width, depth) in enumerate(widths)
    ]
    named.append(("mid_block_res_sample", channels[-1], len(channels) - 1))
    return [
        normal(name, "batch", width, _scaled("height", depth), _scaled("width", depth))
        for name, width, depth in named
    ]


def _scaled(symbol: str, depth: int) -> str:
    return symbol if depth == 0 else f"{symbol}/{2**depth}"


def multiples(source: Source, options: Options) -> dict[str, int]:
    """Return the multiples from the halvings; the UNet adds the residuals."""
    return halvings(read_controlnet(source, str(options.get("folder", FOLDER))))


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: UNet inputs and ``controlnet_cond`` to all residuals.

    ``controlnet_cond`` is in [0, 1]. The residuals are outputs by name.
    """
    option(options, ("folder",))
    config = read_controlnet(source, str(options.get("folder", FOLDER)))
    # Each stage after the first halves.
    factor = 2 ** (len(config["conditioning_embedding_out_channels"]) - 1)
    hint = TensorSpec(
        name="controlnet_cond",
        shape=(
            "batch",
            config.get("conditioning_channels", 3),
            f"{factor}*height",
            f"{factor}*width",
        ),
        draw="hint",
    )
    return (*conditioned_inputs(source, config), hint), tuple(residuals(config))


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the ControlNet behind a ``forward`` of the component's inputs."""
    del attention
    folder = str(dict(component.options).get("folder", FOLDER))
    loaded = load_network(component.source, folder, CLASS)

    def quiet(named: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {**arguments(named), "return_dict": False}

    def residual(made: tuple[tuple[torch.Tensor, ...], torch.Tensor]) -> Any:
        down, middle = made
        return (*down, middle)

    return by_name(loaded, component.inputs, residual, quiet)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw denoising inputs, and the edges of a smooth random picture."""
    drawn = denoising_inputs(component, shapes, step, rng)
    drawn["controlnet_cond"] = edges(component.inputs[-1].bind(shapes), rng)
    return drawn
