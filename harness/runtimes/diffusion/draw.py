"""Draw pictures with diffusers' own pipeline, whoever sits in its seats.

There is no denoising loop here: a pipeline is put together from `seats` and called.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import diffusers
import numpy as np
import torch

from harness.core.pipeline import INPAINT, SD, SD3, SDXL, Pipeline, Sampling
from harness.recipes.checkpoint import read_index
from harness.recipes.diffusion.clip_text import tokenizer_of
from harness.runtimes.diffusion.inputs import Inputs
from harness.runtimes.diffusion.modules import (
    ControlNetSeat,
    StoredTokens,
    TextSeat,
    TransformerSeat,
    UNetSeat,
    VaeSeat,
    control_of,
)
from harness.runtimes.diffusion.networks import Network
from harness.runtimes.diffusion.noise import stored_noise
from harness.runtimes.diffusion.schedule import make_scheduler

OnStep = Callable[[int, float, torch.Tensor, Any], torch.Tensor]
"""Gets the step's number and timestep, the latents it made and the scheduler; returns
the latents to go on with."""

_CLASSES = {
    "text2img": "Pipeline",
    "img2img": "Img2ImgPipeline",
    "controlnet": "ControlNetPipeline",
    INPAINT: "InpaintPipeline",
}
"""Kind to what follows the family in the name of diffusers' class."""

_FIXED: Mapping[str, Mapping[str, Any]] = {
    SD: {
        "safety_checker": None,
        "feature_extractor": None,
        "requires_safety_checker": False,
    },
    SDXL: {"add_watermarker": False},
    SD3: {"text_encoder_3": None, "tokenizer_3": None},
}
"""Family to what its class is given, whoever plays."""

FULL_SCALE = 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who plays in one drawing.

    Attributes:
        networks: Seat to network.
        sampling: How the scheduler is made.
        own_sampling: Whether the app's scheduler is taken as it is; diffusers mends
            outdated settings of the checkpoint's.
        factors: Seat of the autoencoder to the scaling factor of the app.
        dtype: Of latents and of what is computed outside the networks.

    """

    networks: Mapping[str, Network]
    sampling: Sampling
    own_sampling: bool = False
    factors: Mapping[str, float] | None = None
    dtype: torch.dtype = torch.float32


def app_cast(
    pipeline: Pipeline, networks: Mapping[str, Network], factors: Sequence[str]
) -> Cast:
    """Return who plays, with the app's scheduler and its factor in VAE seats."""
    app = pipeline.app
    factor = app.scaling_factor
    return Cast(
        networks=networks,
        sampling=app.sampling or pipeline.sampling,
        own_sampling=app.sampling is not None,
        factors={} if factor is None else dict.fromkeys(factors, factor),
    )


def assemble(pipeline: Pipeline, inputs: Inputs, cast: Cast) -> Any:
    """Return diffusers' pipeline with the cast in its seats."""
    source, dtype, networks = pipeline.source, cast.dtype, cast.networks
    parts: dict[str, Any] = {
        "vae": VaeSeat(
            networks.get("vae_encoder"),
            networks["vae_decoder"],
            source,
            dtype,
            cast.factors or {},
            tiling=pipeline.vae_tiling,
        ),
        "scheduler": make_scheduler(source, cast.sampling),
        **_FIXED[pipeline.family],
    }
    for seat in pipeline.encoders:
        parts[seat] = TextSeat(networks[seat], source, dtype, seat)
        parts[tokenizer_of(seat)] = StoredTokens(inputs.ids[seat])
    for seat in ("unet", "controlled_unet"):
        if seat in networks:
            parts["unet"] = UNetSeat(networks[seat], source, dtype)
    if "controlnet" in networks:
        parts["controlnet"] = ControlNetSeat(networks["controlnet"], source, dtype)
    if "transformer" in networks:
        parts["transformer"] = TransformerSeat(networks["transformer"], source, dtype)
    if pipeline.family == SDXL:
        zeros = read_index(source).get("force_zeros_for_empty_prompt", True)
        parts["force_zeros_for_empty_prompt"] = zeros
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # outdated settings, mended
        pipe = getattr(diffusers, pipeline.family + _CLASSES[pipeline.kind])(**parts)
    if cast.own_sampling:
        pipe.scheduler = make_scheduler(source, cast.sampling)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(
    pipe: Any,
    pipeline: Pipeline,
    inputs: Inputs,
    *,
    on_step: OnStep | None = None,
    decode: bool = True,
    guidance_scale: float | None = None,
) -> np.ndarray:
    """Call the pipeline and return its pictures.

    Args:
        pipe: From `assemble`.
        pipeline: What is drawn.
        inputs: Stored ids, noise and pictures.
        on_step: Told of every step, and may replace its latents.
        decode: Whether to draw pictures, or stop at latents.
        guidance_scale: The app's; None takes the pipeline's.

    Returns:
        Pictures ``[batch, height, width, 3]``, float32, 0 to 255 and not rounded; or
        latents ``[batch, channels, height, width]``.

    """
    dtype = pipe.vae.dtype
    texts = list(pipeline.texts)
    call: dict[str, Any] = {
        "prompt": texts,
        # None is no empty text to Stable Diffusion XL, whose states are then zeros.
        "negative_prompt": [pipeline.negative_prompt] * len(texts)
        if pipeline.negative_prompt
        else None,
        "num_inference_steps": pipeline.steps,
        "guidance_scale": guidance_scale or pipeline.guidance_scale,
        "output_type": "np" if decode else "latent",
        "return_dict": False,
    }
    if pipeline.family == SD3:
        call["max_sequence_length"] = pipeline.t5_tokens
    else:
        call["eta"] = pipeline.eta
    noise = inputs.noise
    if pipeline.kind != "img2img":
        call |= {"height": pipeline.height, "width": pipeline.width}
    if pipeline.kind in {"img2img", INPAINT}:
        call |= {
            "image": _batch(inputs.image, texts, dtype),
            "strength": pipeline.strength,
        }
    else:
        call["latents"] = torch.from_numpy(noise[0].copy()).to(dtype)
        noise = noise[1:]
    if pipeline.kind == INPAINT:
        call["mask_image"] = _batch(inputs.mask, texts, dtype)
    if pipeline.kind == "controlnet":
        call |= {"image": _batch(inputs.image, texts, dtype), **control_of(pipeline)}
    if on_step is not None:

        def told(
            pipe: Any, step: int, timestep: object, made: dict[str, torch.Tensor]
        ) -> dict[str, torch.Tensor]:
            t = float(timestep)  # type: ignore[arg-type]  # a tensor of one number
            return {"latents": on_step(step, t, made["latents"], pipe.scheduler)}

        call["callback_on_step_end"] = told
    with stored_noise(noise, pipe, pipe.scheduler), torch.no_grad():
        made = pipe(**call)[0]
    if not decode:
        return np.asarray(made)
    return np.asarray(made, dtype=np.float32) * np.float32(FULL_SCALE)


def _batch(
    image: np.ndarray | None, texts: list[str], dtype: torch.dtype
) -> torch.Tensor:
    assert image is not None  # noqa: S101  # inputs of these kinds have one
    return torch.from_numpy(np.stack([image] * len(texts))).to(dtype)
