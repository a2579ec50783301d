"""Functions that the recipes of the VAE's two halves share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import load_network, read_config
from harness.recipes.types import Options

if TYPE_CHECKING:
    import numpy as np
    import torch

FOLDER = "vae"

STAGES = {
    "AutoencoderKL": "block_out_channels",
    "AutoencoderTiny": "encoder_block_out_channels",
}
"""The configuration key with one number for each stage, by class."""


def class_name(config: Mapping[str, Any]) -> str:
    """Return the autoencoder's class as its configuration names it.

    Raises:
        SuiteError: The recipes do not know the class.

    """
    name = str(config.get("_class_name", "AutoencoderKL"))
    if name not in STAGES:
        msg = (
            f"vae: no recipe knows the class {name!r}; they know "
            f"{' and '.join(STAGES)}."
        )
        raise SuiteError(msg)
    return name


def half(
    source: Source,
    method: str,
    without: tuple[str, ...],
    answer: Callable[[Any], torch.Tensor],
) -> torch.nn.Module:
    """Return one half of a checkpoint's autoencoder behind a tensor-only ``forward``.

    Args:
        source: The checkpoint.
        method: The autoencoder's method that runs this half.
        without: Parts of the autoencoder that this half lacks.
        answer: Picks the tensor from what the method returns.

    """
    import torch

    class Half(torch.nn.Module):
        """The autoencoder with one tensor as input and one as output."""

        def __init__(self) -> None:
            super().__init__()
            loaded: Any = load_network(
                source, FOLDER, class_name(read_config(source, FOLDER))
            )
            for name in without:
                # Stable Diffusion 3's VAE has no convolution beside its latents, and
                # AutoencoderTiny has no such attribute.
                if hasattr(loaded, name):
                    delattr(loaded, name)
            self.network = loaded

        def forward(self, tensor: torch.Tensor) -> torch.Tensor:
            run = getattr(self.network, method)
            return answer(run(tensor, return_dict=False)[0])

    return Half().eval()


def scaled(latents: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Return latents as the pipeline passes them to the decoder.

    They are divided by the scaling factor, and the shift is added, if there are any. A
    VAE may also state the mean and the deviation of each channel.
    """
    import numpy as np

    tiny = class_name(config) == "AutoencoderTiny"
    scale = config.get("scaling_factor", 1.0 if tiny else 0.18215)
    shift = config.get("shift_factor") or 0.0
    mean, std = config.get("latents_mean"), config.get("latents_std")
    if mean is not None and std is not None:  # as StableDiffusionXLPipeline does
        off, by = (np.reshape(each, (1, -1, 1, 1)) for each in (mean, std))
        return (latents * by / scale + off).astype(np.float32)
    return latents / np.float32(scale) + np.float32(shift)


def image(config: Mapping[str, Any], name: str, channels: str) -> TensorSpec:
    """Return the spec of a picture, ``[batch, channels, factor*height, factor*width]``.

    ``height`` and ``width`` are latent sizes. Each stage after the first halves.
    """
    by = factor(config)
    shape = ("batch", config[channels], f"{by}*height", f"{by}*width")
    return TensorSpec(name=name, shape=shape, draw="image")


def multiples(source: Source, options: Options) -> dict[str, int]:
    """Return no multiples, because a picture of any latent size is valid."""
    del source, options
    return {}


def factor(config: Mapping[str, Any]) -> int:
    """Return the number of pixels per latent along one side."""
    return int(2 ** (len(config[STAGES[class_name(config)]]) - 1))
