"""Task ``question-answering``: where in the text an answer starts and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.text import encoder
from harness.recipes.text.sample_texts import QUESTIONS, tokenised

if TYPE_CHECKING:
    import numpy as np
    import torch

OUTPUTS = ("start_logits", "end_logits")


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Token ids to ``start_logits`` and ``end_logits [batch, tokens]``.

    Raises:
        SuiteError: The head has other labels than where an answer starts and ends.

    """
    if (labels := encoder.labels_of(source)) != len(OUTPUTS):
        msg = (
            f"question-answering needs a head of 2 labels, start and end; "
            f"{source.path / 'config.json'} has {labels}."
        )
        raise SuiteError(msg)
    return encoder.signature(
        source, options, dict.fromkeys(OUTPUTS, ("batch", "tokens"))
    )


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder with its head."""
    network = encoder.load(component, "AutoModelForQuestionAnswering", attention)
    return encoder.wrap(component, network, *OUTPUTS)


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Questions, each with the text that answers it."""
    return tokenised(component, shapes, QUESTIONS, step, rng)
