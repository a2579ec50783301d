"""UNet: one denoising step of Stable Diffusion, 1 to XL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import (
    clip_encoders,
    load_network,
    load_scheduler,
    option,
    read_config,
)
from harness.recipes.diffusion import vae_encoder
from harness.recipes.diffusion.clip_text import FOLDER, prompt_states
from harness.recipes.diffusion.pictures import smooth_pictures
from harness.recipes.diffusion.vae import factor
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes, normal
from harness.recipes.wrapper import first, outputs_of

if TYPE_CHECKING:
    import numpy as np
    import torch

UNET = "unet"
CLASS = "UNet2DConditionModel"
_CONDITIONS = {
    "addition_embed_type": (None, "text_time"),
    "class_embed_type": (None,),
    "num_class_embeds": (None,),
    "encoder_hid_dim_type": (None,),
}
"""Known values of each setting that gives a network more inputs."""

ADDED = ("text_embeds", "time_ids")
"""Additional inputs of Stable Diffusion XL: pooled text, and sizes with crop."""

GUIDANCE = "timestep_cond"
"""Input of a network that was distilled with guidance, such as a latent consistency
model's: an embedding of the guidance scale."""

SCALE = 8.5
"""Guidance scale of the first item in latent consistency models' pipeline."""

PREDICTION = "out_sample"
AESTHETIC_SCORE = 6.0
"""The aesthetic score in the refiner's pipeline."""


def conditioned_inputs(source: Source, config: Mapping[str, Any]) -> list[TensorSpec]:
    """Return the specs of the inputs that a UNet and a ControlNet share."""
    encoder = clip_encoders(source)[:1] or (FOLDER,)
    tokens = read_config(source, *encoder)["max_position_embeddings"]
    return [
        normal("sample", "batch", config["in_channels"], "height", "width"),
        TensorSpec(name="timestep", shape=(1,), dtype="int32", draw="timestep"),
        normal("encoder_hidden_states", "batch", tokens, config["cross_attention_dim"]),
        *added_inputs(source, config),
    ]


def added_inputs(source: Source, config: Mapping[str, Any]) -> list[TensorSpec]:
    """Return ``text_embeds`` and ``time_ids`` of Stable Diffusion XL, or nothing.

    Raises:
        SuiteError: The network has a condition that the recipe does not know.

    """
    for key, known in _CONDITIONS.items():
        if config.get(key) not in known:
            msg = (
                f"{source.path} has a network with {key} = {config[key]!r}, and the "
                f"harness's recipes know {' and '.join(map(repr, known))}. Write a "
                "recipe of your own that gives it its inputs."
            )
            raise SuiteError(msg)
    if config.get("addition_embed_type") is None:
        return []
    pooled = read_config(source, "text_encoder_2")["projection_dim"]
    # Six numbers for Stable Diffusion XL, five for its refiner.
    numbers = config["projection_class_embeddings_input_dim"] - pooled
    numbers //= config["addition_time_embed_dim"]
    return [
        normal("text_embeds", "batch", pooled),
        TensorSpec(name="time_ids", shape=("batch", numbers), draw="sizes"),
    ]


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: latents, timestep and text states to ``out_sample``."""
    option(options, ("folder",))
    folder = str(options.get("folder", UNET))
    config = read_config(source, folder)
    kind = str(config.get("_class_name", CLASS))
    if kind != CLASS or not isinstance(config["cross_attention_dim"], int):
        msg = (
            f"{source.path / folder / 'config.json'} is of a {kind} whose inputs the "
            f"recipe of UNets does not know: it knows a {CLASS} with one width of text "
            "states. Take it out of `components`, or write a recipe of your own."
        )
        raise SuiteError(msg)
    out = ("batch", config["out_channels"], "height", "width")
    inputs = conditioned_inputs(source, config)
    if width := config.get("time_cond_proj_dim"):
        inputs.append(normal(GUIDANCE, "batch", width))
    return tuple(inputs), (TensorSpec(name=PREDICTION, shape=out),)


def multiples(source: Source, options: Options) -> dict[str, int]:
    """Return the multiples from the halvings: each must divide an open side evenly."""
    return halvings(read_config(source, str(options.get("folder", UNET))))


def halvings(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the multiples of a network that halves after each block but the last."""
    times: int = 2 ** (len(config["block_out_channels"]) - 1)
    return {"height": times, "width": times}


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the UNet behind a ``forward`` of the component's inputs."""
    del attention  # diffusers decides by processor; the default one is exported
    folder = str(dict(component.options).get("folder", UNET))
    loaded = load_network(component.source, folder, CLASS)
    return first(loaded, component.inputs, arguments)


def arguments(named: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the arguments of the class; XL's inputs are in a dictionary."""
    added = {name: named.pop(name) for name in ADDED if name in named}
    return {**named, "added_cond_kwargs": added} if added else named


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw noisy latents as the scheduler makes them, and a prompt's hidden states."""
    return denoising_inputs(component, shapes, step, rng)


def denoising_inputs(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw the inputs that a UNet and a ControlNet share.

    Latents have the noise share of the checkpoint's scheduler at that timestep. `step`
    cycles through the timesteps 0, 1, the middle one and the last.
    """
    import numpy as np
    import torch

    batch, channels, *sides = component.inputs[0].bind(shapes)
    # A UNet does not predict noise for channels beside the latents.
    own = next(
        (s.shape[1] for s in component.outputs if s.name == PREDICTION), channels
    )
    latents = (batch, int(own), *sides)
    scheduler = load_scheduler(component.source)
    last = scheduler.config.num_train_timesteps - 1
    timestep = (0, 1, last // 2, last)[step % 4]
    clean, noise = (
        torch.from_numpy(rng.standard_normal(latents, dtype=np.float32))
        for _ in range(2)
    )
    noisy = _noisy(component.source, scheduler, clean, noise, timestep)
    beside = (batch, channels - int(own), *sides)
    sample = [noisy.numpy(), *_more_channels(component.source, beside, int(own), rng)]
    drawn = {
        "sample": np.concatenate(sample, axis=1),
        "timestep": np.array([timestep], dtype=np.int32),
        **prompt_states(component.source, shapes["batch"], step, rng),
    }
    for spec in component.inputs:
        if spec.name == "time_ids":
            drawn["time_ids"] = time_ids(component.source, spec, shapes)
        if spec.name == GUIDANCE:
            drawn[GUIDANCE] = _guidance(*spec.bind(shapes))
    # A ControlNet that was trained with one encoder does not take pooled text.
    names = {spec.name for spec in component.inputs}
    return {name: value for name, value in drawn.items() if name in names}


def _guidance(batch: int, width: int) -> np.ndarray:
    """Return embeddings of guidance scales, as diffusers' pipelines compute them.

    A pipeline gives every item the same scale. Here they differ, to detect a runtime
    that exchanges items.
    """
    import numpy as np

    half = width // 2
    rates = np.exp(np.arange(half) * -(np.log(10000.0) / (half - 1)))
    angles = 1000.0 * (SCALE - 1.0 - 0.5 * np.arange(batch))[:, None] * rates
    found = np.zeros((batch, width), dtype=np.float32)
    found[:, :half], found[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return found


def _more_channels(
    source: Source, shape: tuple[int, ...], latents: int, rng: Rng
) -> list[np.ndarray]:
    """Return arrays that fill ``[batch, channels, height, width]`` along the channels.

    The number of channels decides. One more channel than the latents is for an
    inpainting UNet: a mask (1 where it paints) and the scaled latents of the picture
    without the masked part. As many channels as the latents are for InstructPix2Pix:
    the picture's latents, not scaled. Any other number is a picture in [-1, 1], such as
    a depth map. `latents` is the number of channels of latents.
    """
    import numpy as np

    batch, channels, height, width = shape
    if channels not in {latents, latents + 1}:
        return [smooth_pictures(shape, rng)] if channels else []
    mask = np.zeros((batch, 1, height, width), dtype=np.float32)
    inpaints = channels > latents
    if inpaints:
        for item in range(batch):  # each has its own place, so that items differ
            top, left = height // 4 + item % 2, width // 4 + item // 2 % 2
            mask[item, :, top : 3 * height // 4, left : 3 * width // 4] = 1.0
    (picture,), _ = vae_encoder.signature(source, {})
    size = picture.bind({"batch": batch, "height": height, "width": width})
    shown = 1.0 - np.kron(mask, np.ones((size[2] // height, size[3] // width)))
    pictures = smooth_pictures(size, rng) * shown.astype(np.float32)
    made = outputs_of(vae_encoder, "vae_encoder", source, {"sample": pictures})
    if not inpaints:
        return [made["latent_sample"]]
    scale = np.float32(read_config(source, "vae").get("scaling_factor", 0.18215))
    return [mask, scale * made["latent_sample"]]


def _noisy(
    source: Source,
    scheduler: Any,
    clean: torch.Tensor,
    noise: torch.Tensor,
    timestep: int,
) -> torch.Tensor:
    """Return the latents that a network gets at a training timestep.

    Schedulers that count in sigmas add up to fifteen times the noise, and
    `scale_model_input` scales the sum back. This gives the same shares of clean latents
    and noise as other schedulers. Their functions are not called here: they look a
    timestep up in a run that was not started, and find a wrong one or none.

    Raises:
        SuiteError: The scheduler has no such shares.

    """
    import torch

    shares = getattr(scheduler, "alphas_cumprod", None)
    if shares is None:
        msg = (
            f"{source.path / 'scheduler'} has a {type(scheduler).__name__}, which has "
            "no alphas_cumprod, so realistic latents of its timesteps cannot be drawn; "
            "take another of `profiles` under [inputs], or write a recipe of your own."
        )
        raise SuiteError(msg)
    share = shares[torch.tensor([timestep])]
    noisy: torch.Tensor = share**0.5 * clean + (1 - share) ** 0.5 * noise
    return noisy


def time_ids(source: Source, spec: TensorSpec, shapes: Sizes) -> np.ndarray:
    """Return original size, crop and target size in pixels, as the pipeline does.

    The refiner has an aesthetic score in place of the target size. A pipeline gives
    every item the same values. Here they differ, to detect a runtime that exchanges
    items.
    """
    import numpy as np

    batch, numbers = spec.bind(shapes)
    target = np.array([shapes["height"], shapes["width"]])
    target *= factor(read_config(source, "vae"))
    rows = [
        [
            *(target + item * target // 4),
            *(item * target // 8),
            *(target if numbers > 5 else [AESTHETIC_SCORE]),  # noqa: PLR2004  # as above
        ]
        for item in range(batch)
    ]
    return np.array(rows, dtype=np.float32)
