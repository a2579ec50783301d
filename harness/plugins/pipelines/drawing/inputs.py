"""A pipeline's inputs: token ids, noise, a picture or a hint. They are drawn once.

They are stored as arrays, so that every runtime gets the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.errors import StoreError, SuiteError
from harness.measure.named_arrays import load_arrays, save_arrays
from harness.plugins.pipelines.case import INPAINT, Pipeline
from harness.plugins.pipelines.drawing.hints import (
    canny_hint,
    fit,
    read_image,
    three_channels,
)
from harness.recipes.checkpoint import read_config, tokenizer_of
from harness.recipes.diffusion.clip_text import token_ids
from harness.recipes.diffusion.pictures import smooth_pictures
from harness.recipes.diffusion.vae import factor as pixels_per_latent
from harness.recipes.tokenizer import load_tokenizer

_IDS = "ids of "
"""What stands before a text encoder's name in the name of its stored ids."""

_HALF = 127.5
"""Lowest grey level of a mask at which a pixel is drawn anew."""

_TWO_ORDERS = 2
"""Largest number of network calls that a scheduler makes in one step: Heun's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInputs:
    """A pipeline's inputs.

    Attributes:
        ids: Text encoder to text to token ids, int64 ``[tokens]``.
        noise: Noise ``[draws, batch, channels, height, width]``, float32, unit
            variance; the first draw is the initial noise, the others are the
            scheduler's.
        image: Array ``[3, height, width]`` in [0, 1]: a picture, or a hint of 0 and 1;
            None for text to image.
        mask: Array ``[1, height, width]``, 1 where a picture is drawn anew and 0
            elsewhere; None where the whole picture is drawn anew.

    """

    ids: Mapping[str, Mapping[str, np.ndarray]]
    noise: np.ndarray
    image: np.ndarray | None
    mask: np.ndarray | None = None


def draw_inputs(pipeline: Pipeline) -> PipelineInputs:
    """Draw a pipeline's inputs from its seed.

    Raises:
        SuiteError: Its picture cannot be read, or has not the requested size.

    """
    rng = np.random.default_rng(pipeline.seed)
    texts = tuple(dict.fromkeys((*pipeline.texts, pipeline.negative_prompt)))
    config = read_config(pipeline.source, "vae")
    factor = pixels_per_latent(config)
    latents = (
        len(pipeline.texts),
        config["latent_channels"],
        pipeline.height // factor,
        pipeline.width // factor,
    )
    draws = 2 + _TWO_ORDERS * pipeline.steps
    noise = rng.standard_normal((draws, *latents), dtype=np.float32)
    return PipelineInputs(
        ids={role: _ids(pipeline, texts, role) for role in pipeline.encoders},
        noise=noise,
        image=_image(pipeline),
        mask=_mask(pipeline, factor) if pipeline.kind == INPAINT else None,
    )


def save_inputs(inputs: PipelineInputs, folder: Path) -> Mapping[str, object]:
    """Write the arrays to `folder`; return the texts, in the order of their ids."""
    ids = {_IDS + role: np.stack([*ids.values()]) for role, ids in inputs.ids.items()}
    others = {"noise": inputs.noise, "image": inputs.image, "mask": inputs.mask}
    held = {name: array for name, array in others.items() if array is not None}
    save_arrays(ids | held, folder)
    return {"texts": list(next(iter(inputs.ids.values())))}


def load_inputs(folder: Path, texts: list[str]) -> PipelineInputs:
    """Read what `save_inputs` wrote.

    Raises:
        StoreError: The files are damaged.

    """
    try:
        arrays = load_arrays(folder)
        return PipelineInputs(
            ids={
                name.removeprefix(_IDS): dict(zip(texts, ids, strict=True))
                for name, ids in arrays.items()
                if name.startswith(_IDS)
            },
            noise=arrays["noise"],
            image=arrays.get("image"),
            mask=arrays.get("mask"),
        )
    except (OSError, ValueError, KeyError) as error:
        msg = f"{folder} holds no readable inputs: {error}. Run `parity store verify`."
        raise StoreError(msg) from error


def _ids(
    pipeline: Pipeline, texts: tuple[str, ...], role: str
) -> dict[str, np.ndarray]:
    source = pipeline.source
    tokenizer = load_tokenizer(source.path / tokenizer_of(role), "CLIPTokenizer")
    if tokenizer is None:
        # Without a tokenizer weights are drawn, and words mean nothing.
        rng = np.random.default_rng(pipeline.seed)
        drawn = token_ids(source, len(texts), 0, rng, role).astype(np.int64)
        return dict(zip(texts, drawn, strict=True))
    tokens = read_config(source, role)["max_position_embeddings"]
    found = {}
    for text in texts:
        ids = tokenizer(text, padding="max_length", max_length=tokens)["input_ids"]
        if len(ids) > tokens:
            msg = (
                f"{pipeline.name}: the prompt {text[:40]!r} has {len(ids)} tokens and "
                f"the {role.replace('_', ' ')} takes {tokens}; shorten it, or "
                "added_prompt."
            )
            raise SuiteError(msg)
        found[text] = np.asarray(ids, dtype=np.int64)
    return found


def _image(pipeline: Pipeline) -> np.ndarray | None:
    if pipeline.kind == "text2img":
        return None
    size = (pipeline.height, pipeline.width)
    if pipeline.image is None:
        # One picture for every seed, so that a pair can be drawn again by itself.
        rng = np.random.default_rng(0)
        soft = smooth_pictures((1, 3, *size), rng)[0]
        image = np.ascontiguousarray(((soft + 1) * 127.5).transpose(1, 2, 0))
        image = image.astype(np.uint8)
    else:
        image = three_channels(read_image(pipeline.image))
    if pipeline.kind == "controlnet":
        control = pipeline.control
        return canny_hint(
            fit(image, control.resolution),
            low_threshold=control.low_threshold,
            high_threshold=control.high_threshold,
        )
    _check_size(pipeline, pipeline.image, image)
    return np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32) / 255


def _mask(pipeline: Pipeline, factor: int) -> np.ndarray:
    """Return the white part of the mask, or a box that is in no corner and no square.

    Raises:
        SuiteError: The mask has another size, or leaves no latent to be drawn anew.

    """
    height, width = pipeline.height, pipeline.width
    mask = np.zeros((1, height, width), dtype=np.float32)
    if pipeline.mask is None:
        mask[:, height // 4 : -height // 4, width // 3 : -width // 6] = 1.0
        return mask
    picture = three_channels(read_image(pipeline.mask))
    _check_size(pipeline, pipeline.mask, picture)
    mask[0] = picture.mean(axis=2) >= _HALF
    if not mask[:, ::factor, ::factor].any():  # diffusers reads these pixels
        msg = (
            f"{pipeline.name}: {pipeline.mask} is white at none of the pixels that "
            f"stand for latents, each {factor}th of each {factor}th row, so nothing "
            "would be drawn; paint white what is to be drawn anew."
        )
        raise SuiteError(msg)
    return mask


def _check_size(pipeline: Pipeline, path: Path | None, picture: np.ndarray) -> None:
    height, width = picture.shape[:2]
    if (height, width) != (pipeline.height, pipeline.width):
        msg = (
            f"{pipeline.name}: {path} is {width} x {height} px and the pipeline draws "
            f"{pipeline.width} x {pipeline.height}; give `height` and `width`, or "
            "another picture."
        )
        raise SuiteError(msg)
