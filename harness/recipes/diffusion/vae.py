"""What the VAE's two halves share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.core.case import Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import load_network, read_config

if TYPE_CHECKING:
    import numpy as np

FOLDER = "vae"

_STAGES = {
    "AutoencoderKL": "block_out_channels",
    "AutoencoderTiny": "encoder_block_out_channels",
}
"""Class to the key of its configuration that has one number a stage."""


def class_name(config: Mapping[str, Any]) -> str:
    """Return the autoencoder's class as its configuration names it.

    Raises:
        SuiteError: It is not one that the recipes know.

    """
    name = str(config.get("_class_name", "AutoencoderKL"))
    if name not in _STAGES:
        msg = (
            f"vae: no recipe knows the class {name!r}; they know "
            f"{' and '.join(_STAGES)}."
        )
        raise SuiteError(msg)
    return name


def network(source: Source) -> Any:
    """Return the class that the configuration names, imported late."""
    import diffusers

    return getattr(diffusers, class_name(read_config(source, FOLDER)))


def load_half(source: Source, *without: str) -> Any:
    """Return the autoencoder of a checkpoint, less the parts that this half lacks."""
    loaded = load_network(source, FOLDER, partial(network, source))
    for name in without:
        # Stable Diffusion 3's has no convolution beside its latents, AutoencoderTiny
        # no such attribute.
        if hasattr(loaded, name):
            delattr(loaded, name)
    return loaded


def scaled(latents: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Return latents as the pipeline hands them to the decoder.

    Divided by the scaling factor and moved by the shift, of those that have one.
    """
    import numpy as np

    tiny = class_name(config) == "AutoencoderTiny"
    scale = config.get("scaling_factor", 1.0 if tiny else 0.18215)
    shift = config.get("shift_factor") or 0.0
    return latents / np.float32(scale) + np.float32(shift)


def image(config: Mapping[str, Any], name: str, channels: str) -> TensorSpec:
    """Return the picture, ``[batch, channels, factor*height, factor*width]``.

    ``height`` and ``width`` are latent sizes; each stage after the first halves.
    """
    by = factor(config)
    shape = ("batch", config[channels], f"{by}*height", f"{by}*width")
    return TensorSpec(name=name, shape=shape, draw="image")


def multiples(
    source: Source, options: Mapping[str, str | int | bool]
) -> dict[str, int]:
    """Return nothing: a picture of any latent size will do."""
    del source, options
    return {}


def factor(config: Mapping[str, Any]) -> int:
    """Return how many pixels a latent spans."""
    return int(2 ** (len(config[_STAGES[class_name(config)]]) - 1))
