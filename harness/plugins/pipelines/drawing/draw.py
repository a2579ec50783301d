"""Draw pictures with diffusers' own pipeline, with any network in each of its roles.

There is no denoising loop here: a pipeline is assembled from its roles and called.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import diffusers
import numpy as np
import torch

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.pipelines.case import INPAINT, SD, SD3, SDXL, Pipeline, Sampling
from harness.plugins.pipelines.drawing.inputs import PipelineInputs
from harness.plugins.pipelines.drawing.modules import (
    ControlNetRole,
    StoredTokens,
    TextRole,
    TransformerRole,
    UNetRole,
    VaeRole,
)
from harness.plugins.pipelines.drawing.schedule import make_scheduler
from harness.recipes.checkpoint import read_index, tokenizer_of

if TYPE_CHECKING:
    from harness.plugins.pipelines.drawing.networks import Network

OnStep = Callable[[int, float, torch.Tensor, Any], torch.Tensor]
"""A function that gets a step's number, its timestep, its latents and the scheduler,
and returns the latents for the next step."""

_CLASSES = {
    "text2img": "Pipeline",
    "img2img": "Img2ImgPipeline",
    "controlnet": "ControlNetPipeline",
    INPAINT: "InpaintPipeline",
}
"""Kind to the part after the family in the name of diffusers' class."""

_FIXED: Mapping[str, Mapping[str, Any]] = {
    SD: {
        "safety_checker": None,
        "feature_extractor": None,
        "requires_safety_checker": False,
    },
    SDXL: {"add_watermarker": False},
    SD3: {"text_encoder_3": None, "tokenizer_3": None},
}
"""Family to the arguments of its class that are always the same."""

FULL_SCALE = 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParts:
    """The parts of one drawing that may be exchanged.

    Attributes:
        networks: Role to network.
        sampling: Settings of the scheduler.
        own_sampling: Whether the app's scheduler is used unchanged; diffusers fixes
            outdated settings of the checkpoint's.
        factors: Role of the autoencoder to the scaling factor of the app.
        dtype: Dtype of latents and of values computed outside the networks.

    """

    networks: Mapping[str, Network]
    sampling: Sampling
    own_sampling: bool = False
    factors: Mapping[str, float] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32


def app_parts(
    pipeline: Pipeline, networks: Mapping[str, Network], deployed: Collection[str]
) -> PipelineParts:
    """Return the networks with the app's scheduler.

    VAE roles among the roles of deployed files have the app's factor.
    """
    app = pipeline.app
    factor = app.scaling_factor
    roles = [role for role in ("vae_encoder", "vae_decoder") if role in deployed]
    return PipelineParts(
        networks=networks,
        sampling=app.sampling or pipeline.sampling,
        own_sampling=app.sampling is not None,
        factors={} if factor is None else dict.fromkeys(roles, factor),
    )


def assemble(pipeline: Pipeline, inputs: PipelineInputs, given: PipelineParts) -> Any:
    """Return diffusers' pipeline with the given networks in its roles."""
    source, dtype, networks = pipeline.source, given.dtype, given.networks
    parts: dict[str, Any] = {
        "vae": VaeRole(
            networks.get("vae_encoder"),
            networks["vae_decoder"],
            source,
            dtype,
            given.factors,
            tiling=pipeline.vae_tiling,
        ),
        "scheduler": make_scheduler(source, given.sampling),
        **_FIXED[pipeline.family],
    }
    for role in pipeline.encoders:
        parts[role] = TextRole(networks[role], source, dtype, role)
        parts[tokenizer_of(role)] = StoredTokens(inputs.ids[role])
    for role in ("unet", "controlled_unet"):
        if role in networks:
            parts["unet"] = UNetRole(networks[role], source, dtype)
    if "controlnet" in networks:
        parts["controlnet"] = ControlNetRole(networks["controlnet"], source, dtype)
    if "transformer" in networks:
        parts["transformer"] = TransformerRole(networks["transformer"], source, dtype)
    if pipeline.family == SDXL:
        zeros = read_index(source).get("force_zeros_for_empty_prompt", True)
        parts["force_zeros_for_empty_prompt"] = zeros
    with warnings.catch_warnings():
        # It warns of outdated settings, and fixes them.
        warnings.simplefilter("ignore", FutureWarning)
        pipe = getattr(diffusers, pipeline.family + _CLASSES[pipeline.kind])(**parts)
    if given.own_sampling:
        pipe.scheduler = make_scheduler(source, given.sampling)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(
    pipe: Any,
    pipeline: Pipeline,
    inputs: PipelineInputs,
    *,
    on_step: OnStep | None = None,
    decode: bool = True,
    guidance_scale: float | None = None,
) -> np.ndarray:
    """Call the pipeline and return its pictures.

    `on_step` is called after every step, and may replace its latents. Without `decode`
    the result is the latents. `guidance_scale` is the app's; None for the pipeline's.

    Returns:
        Pictures ``[batch, height, width, 3]``, float32, 0 to 255 and not rounded; or
        latents ``[batch, channels, height, width]``.

    """
    dtype = pipe.vae.dtype
    texts = list(pipeline.texts)
    call: dict[str, Any] = {
        "prompt": texts,
        # For Stable Diffusion XL None is no empty text: the states are then zeros.
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
        call |= {
            "image": _batch(inputs.image, texts, dtype),
            "controlnet_conditioning_scale": float(pipeline.control.strength),
            "guess_mode": pipeline.control.guess_mode,
        }
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


@contextmanager
def stored_noise(noise: np.ndarray, *users: object) -> Iterator[None]:
    """Make pipelines and schedulers draw stored noise, in order.

    A seed gives other noise on another device, in another dtype, and from another
    library.

    Args:
        noise: Noise ``[draws, batch, channels, height, width]``, float32, unit
            variance.
        users: Objects whose modules call diffusers' ``randn_tensor``.

    Raises:
        StageError: More noise is drawn than is stored, or noise of another shape.

    """
    left = iter(noise)

    def draw(
        shape: tuple[int, ...],
        generator: object = None,
        device: object = None,
        dtype: torch.dtype | None = None,
        layout: object = None,
    ) -> torch.Tensor:
        del generator, device, layout
        drawn = next(left, None)
        if drawn is None or drawn.shape != tuple(shape):
            stored = "none is left" if drawn is None else f"stored is {drawn.shape}"
            msg = f"The pipeline draws noise of shape {tuple(shape)}, and {stored}."
            raise StageError(msg, outcome=Outcome.RUN)
        return torch.from_numpy(drawn.copy()).to(dtype)

    modules: dict[str, Any] = {
        module.__name__: module
        for user in users
        for cls in type(user).__mro__
        if hasattr(module := sys.modules[cls.__module__], "randn_tensor")
    }
    with ExitStack() as stack:
        for module in modules.values():
            stack.enter_context(patch.object(module, "randn_tensor", draw))
        yield


def _batch(
    image: np.ndarray | None, texts: list[str], dtype: torch.dtype
) -> torch.Tensor:
    assert image is not None  # noqa: S101  # inputs of these kinds have one
    return torch.from_numpy(np.stack([image] * len(texts))).to(dtype)
