"""Input channels of a UNet beside its latents: a mask, a picture or its latents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.case import Source
from harness.recipes.checkpoint import read_config
from harness.recipes.diffusion import vae_encoder
from harness.recipes.diffusion.pictures import smooth_pictures
from harness.recipes.types import Rng
from harness.recipes.wrapper import outputs_of

if TYPE_CHECKING:
    import numpy as np


def more_channels(
    source: Source, shape: tuple[int, ...], latents: int, rng: Rng
) -> list[np.ndarray]:
    """Return arrays that fill ``[batch, channels, height, width]`` along the channels.

    The number of channels decides. One more channel than the latents is for an
    inpainting UNet: a mask (1 where it paints) and the scaled latents of the picture
    without the masked part. As many channels as the latents are for InstructPix2Pix:
    the picture's latents, not scaled. Any other number is a picture in [-1, 1], such as
    a depth map.

    Args:
        source: The checkpoint whose autoencoder makes the latents.
        shape: The shape to fill.
        latents: Number of channels of latents.
        rng: The random generator.

    """
    import numpy as np

    batch, channels, height, width = shape
    if channels == latents + 1:
        mask = np.zeros((batch, 1, height, width), dtype=np.float32)
        for item in range(batch):  # each has its own place, so that items differ
            top, left = height // 4 + item % 2, width // 4 + item // 2 % 2
            mask[item, :, top : 3 * height // 4, left : 3 * width // 4] = 1.0
        factor = np.float32(read_config(source, "vae").get("scaling_factor", 0.18215))
        return [mask, factor * _encoded(source, mask, rng)]
    if channels == latents:
        mask = np.zeros((batch, 1, height, width), dtype=np.float32)
        return [_encoded(source, mask, rng)]
    return [smooth_pictures(shape, rng)] if channels else []


def _encoded(source: Source, mask: np.ndarray, rng: Rng) -> np.ndarray:
    """Return the autoencoder's latents of pictures that are grey under a mask."""
    import numpy as np

    (picture,), _ = vae_encoder.signature(source, {})
    batch, _, height, width = mask.shape
    size = picture.bind({"batch": batch, "height": height, "width": width})
    shown = 1.0 - np.kron(mask, np.ones((size[2] // height, size[3] // width)))
    pictures = smooth_pictures(size, rng) * shown.astype(np.float32)
    made = outputs_of(vae_encoder, "vae_encoder", source, {"sample": pictures})
    return made["latent_sample"]
