"""Task ``text-classification``, also called ``zero-shot-classification``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.text import encoder
from harness.recipes.text.sample_texts import CLAIMS, SENTENCES, tokenised

if TYPE_CHECKING:
    import numpy as np
    import torch


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Token ids to ``logits [batch, labels]``."""
    shape = ("batch", encoder.labels_of(source))
    return encoder.signature(source, options, {"logits": shape})


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder with its head."""
    network = encoder.load(component, "AutoModelForSequenceClassification", attention)
    return encoder.wrap(component, network, "logits")


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Pairs of premise and hypothesis, and sentences, in turn."""
    return tokenised(component, shapes, (CLAIMS, SENTENCES)[step % 2], step, rng)
