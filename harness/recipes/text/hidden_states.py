"""Task ``default``: the hidden state of every token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.text import encoder
from harness.recipes.text.sample_texts import SENTENCES, tokenised

if TYPE_CHECKING:
    import numpy as np
    import torch


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Token ids to ``last_hidden_state [batch, tokens, width]``."""
    hidden = ("batch", "tokens", encoder.width_of(source))
    return encoder.signature(source, options, {"last_hidden_state": hidden})


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder without its pooler."""
    network = encoder.load(component, "AutoModel", attention, headless=True)
    return encoder.wrap(component, network, "last_hidden_state")


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Sentences, cut or padded."""
    return tokenised(component, shapes, SENTENCES, step, rng)
