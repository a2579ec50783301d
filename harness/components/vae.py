"""What the VAE's two halves share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.spec import Source, TensorSpec


def network() -> Any:
    """Return the class, imported late."""
    from diffusers import AutoencoderKL

    return AutoencoderKL


def image(config: Mapping[str, Any], name: str, channels: str) -> TensorSpec:
    """Return the picture, ``[batch, channels, factor*height, factor*width]``.

    ``height`` and ``width`` are latent sizes; each block after the first halves.
    """
    factor = 2 ** (len(config["block_out_channels"]) - 1)
    shape = ("batch", config[channels], f"{factor}*height", f"{factor}*width")
    return TensorSpec(name=name, shape=shape, draw="image")


def multiples(
    source: Source, options: Mapping[str, str | int | bool]
) -> dict[str, int]:
    """Return nothing: a picture of any latent size will do."""
    del source, options
    return {}
