"""The second CLIP text encoder, of Stable Diffusion XL and 3, with its projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.diffusion.clip_text import build_from, signature_of, token_ids

if TYPE_CHECKING:
    import numpy as np
    import torch

FOLDER = "text_encoder_2"


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``input_ids`` to ``text_embeds``, the last and the penultimate hidden state."""
    return signature_of(source, options, FOLDER)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder behind ``forward(input_ids)``."""
    return build_from(component, FOLDER, attention)


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Tokenise prompts, or draw begin, words, end where there is no tokenizer."""
    ids = token_ids(component.source, shapes["batch"], step, rng, FOLDER)
    return {"input_ids": ids}
