"""CLIP text encoder: token ids to hidden states and the pooled output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.components.checkpoint import (
    load_network,
    load_tokenizer,
    option,
    read_config,
)
from harness.spec import Component, Source, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch

PROMPTS = (
    "a seven in red ink on white paper",
    "",
    "a photo of an astronaut riding a horse on mars, highly detailed, 8k",
    "the number 4, blue ink, yellow paper",
    "three",
    "an oil painting of a small house by the sea at dusk; warm light, calm water",
)
"""Texts of different lengths, the empty one (classifier-free guidance) among them."""


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``input_ids [batch, tokens]`` to hidden states and pooled output."""
    option(options, ("penultimate",))
    config = read_config(source, "text_encoder")
    tokens, width = config["max_position_embeddings"], config["hidden_size"]
    hidden = ("batch", tokens, width)
    outputs = [
        TensorSpec(name="last_hidden_state", shape=hidden),
        TensorSpec(name="pooler_output", shape=("batch", width)),
    ]
    if options.get("penultimate"):
        outputs.append(TensorSpec(name="penultimate_hidden_state", shape=hidden))
    ids = TensorSpec(
        name="input_ids", shape=("batch", tokens), dtype="int32", draw="tokens"
    )
    return (ids,), tuple(outputs)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder behind ``forward(input_ids)``."""
    import torch

    def network() -> Any:
        from transformers import CLIPTextModel

        return CLIPTextModel

    class TextEncoder(torch.nn.Module):
        """Tensor in, tensors out."""

        def __init__(self, encoder: torch.nn.Module, *, penultimate: bool) -> None:
            super().__init__()
            self.network = encoder
            self.penultimate = penultimate

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
            out = self.network(input_ids, output_hidden_states=self.penultimate)
            if self.penultimate:
                hidden = out.hidden_states[-2]
                return out.last_hidden_state, out.pooler_output, hidden
            return out.last_hidden_state, out.pooler_output

    encoder = load_network(
        component.source, "text_encoder", network, attention=attention
    )
    penultimate = bool(dict(component.options).get("penultimate", False))
    return TextEncoder(encoder, penultimate=penultimate).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Tokenise prompts, or draw begin, words, end where there is no tokenizer."""
    return {"input_ids": token_ids(component.source, shapes["batch"], step, rng)}


def token_ids(
    source: Source, batch: int, step: int, rng: np.random.Generator
) -> np.ndarray:
    """Return int32 ids ``[batch, tokens]``, padded to the model's length."""
    import numpy as np

    config = read_config(source, "text_encoder")
    tokens = config["max_position_embeddings"]
    tokenizer = load_tokenizer(source)
    count = len(PROMPTS)
    texts = [PROMPTS[(step + item) % count] for item in range(batch)]
    # Numbered once they come round again: items of a batch are never equal.
    texts[count:] = [f"{i // count} {t}" for i, t in enumerate(texts) if i >= count]
    if tokenizer is not None:
        encoded = tokenizer(
            texts, padding="max_length", max_length=tokens, truncation=True
        )
        return np.asarray(encoded["input_ids"], dtype=np.int32)
    # CLIP's vocabulary ends with its begin and end markers, and pads with the end.
    end = config["vocab_size"] - 1
    ids = np.full((batch, tokens), end, dtype=np.int32)
    ids[:, 0] = end - 1
    for item, text in enumerate(texts):
        words = min(len(text.split()), tokens - 2)
        ids[item, 1 : 1 + words] = rng.integers(0, end - 1, size=words)
    return ids


def prompt_states(
    source: Source, batch: int, step: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the text encoder's hidden states ``[batch, tokens, width]``, float32."""
    import torch

    inputs, outputs = signature(source, {})
    component = Component(
        name="text_encoder",
        recipe="text_encoder",
        source=source,
        inputs=inputs,
        outputs=outputs,
    )
    ids = torch.from_numpy(token_ids(source, batch, step, rng))
    with torch.no_grad():
        states: torch.Tensor = build(component)(ids)[0]
    return states.numpy()
