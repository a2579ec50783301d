"""CLIP text encoder: token ids to hidden states and the pooled output.

Stable Diffusion XL and 3 have two, and read the state before the last of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import load_network, option, read_config
from harness.recipes.tokenizer import load_tokenizer

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


FOLDER = "text_encoder"
_FOLDERS = (FOLDER, "text_encoder_2")
_PROJECTED = "CLIPTextModelWithProjection"


def clip_encoders(source: Source) -> tuple[str, ...]:
    """Return the checkpoint's folders that hold a CLIP text encoder."""
    return tuple(
        folder
        for folder in _FOLDERS
        if (source.path / folder / "config.json").is_file()
        and str(read_config(source, folder).get("model_type", "clip")).startswith(
            "clip"
        )
    )


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``input_ids [batch, tokens]`` to hidden states and pooled output."""
    return signature_of(source, options, FOLDER)


def signature_of(
    source: Source, options: Mapping[str, str | int | bool], folder: str
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the inputs and outputs of the encoder in `folder`.

    ``penultimate_hidden_state`` is the last of the outputs where the option says so;
    without it, where the checkpoint has a second CLIP encoder.
    """
    option(options, ("penultimate",))
    config = read_config(source, folder)
    tokens, width = config["max_position_embeddings"], config["hidden_size"]
    hidden = ("batch", tokens, width)
    states = TensorSpec(name="last_hidden_state", shape=hidden)
    if _is_projected(config):
        projected = ("batch", config["projection_dim"])
        outputs = [TensorSpec(name="text_embeds", shape=projected), states]
    else:
        outputs = [states, TensorSpec(name="pooler_output", shape=("batch", width))]
    default = _FOLDERS[1] in clip_encoders(source)
    if options.get("penultimate", default):
        outputs.append(TensorSpec(name="penultimate_hidden_state", shape=hidden))
    ids = TensorSpec(
        name="input_ids", shape=("batch", tokens), dtype="int32", draw="tokens"
    )
    return (ids,), tuple(outputs)


def _is_projected(config: Mapping[str, Any]) -> bool:
    return _PROJECTED in (config.get("architectures") or ())


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder behind ``forward(input_ids)``."""
    return build_from(component, FOLDER, attention)


def build_from(component: Component, folder: str, attention: str) -> torch.nn.Module:
    """Return the encoder in `folder` behind ``forward(input_ids)``."""
    import torch

    def network() -> Any:
        from transformers import CLIPTextModel, CLIPTextModelWithProjection

        projected = _is_projected(read_config(component.source, folder))
        return CLIPTextModelWithProjection if projected else CLIPTextModel

    class TextEncoder(torch.nn.Module):
        """Tensor in, tensors out."""

        def __init__(self, encoder: torch.nn.Module, names: tuple[str, ...]) -> None:
            super().__init__()
            self.network = encoder
            self.names = names

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
            penultimate = "penultimate_hidden_state" in self.names
            out = self.network(input_ids, output_hidden_states=penultimate)
            return tuple(
                out.hidden_states[-2]
                if name == "penultimate_hidden_state"
                else getattr(out, name)
                for name in self.names
            )

    encoder = load_network(component.source, folder, network, attention=attention)
    names = tuple(spec.name for spec in component.outputs)
    return TextEncoder(encoder, names).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Tokenise prompts, or draw begin, words, end where there is no tokenizer."""
    return {"input_ids": token_ids(component.source, shapes["batch"], step, rng)}


def token_ids(
    source: Source,
    batch: int,
    step: int,
    rng: np.random.Generator,
    folder: str = FOLDER,
) -> np.ndarray:
    """Return int32 ids ``[batch, tokens]``, padded to the model's length."""
    import numpy as np

    config = read_config(source, folder)
    tokens = config["max_position_embeddings"]
    tokenizer = load_tokenizer(source.path / tokenizer_of(folder), "CLIPTokenizer")
    texts = prompts(batch, step)
    if tokenizer is not None:
        encoded = tokenizer(
            texts, padding="max_length", max_length=tokens, truncation=True
        )
        return np.asarray(encoded["input_ids"], dtype=np.int32)
    # CLIP's vocabulary ends with its begin and end markers. The first encoder's
    # tokenizer pads with the end, the second's with "!", the first word.
    end = config["vocab_size"] - 1
    ids = np.full((batch, tokens), end if folder == FOLDER else 0, dtype=np.int32)
    ids[:, 0] = end - 1
    for item, text in enumerate(texts):
        words = min(len(text.split()), tokens - 2)
        ids[item, 1 : 1 + words] = rng.integers(0, end - 1, size=words)
        ids[item, 1 + words] = end
    return ids


def prompts(batch: int, step: int) -> list[str]:
    """Return texts of which no two are equal, a step further each sample."""
    count = len(PROMPTS)
    texts = [PROMPTS[(step + item) % count] for item in range(batch)]
    # Numbered once they come round again.
    texts[count:] = [f"{i // count} {t}" for i, t in enumerate(texts) if i >= count]
    return texts


def tokenizer_of(folder: str) -> str:
    """Return the folder of the tokenizer of a text encoder's.

    >>> tokenizer_of("text_encoder_2")
    'tokenizer_2'
    """
    return folder.replace(FOLDER, "tokenizer")


def prompt_states(
    source: Source, batch: int, step: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return what a pipeline's text encoders make of prompts, float32.

    ``encoder_hidden_states [batch, tokens, width]``: the one encoder's last state, or
    the penultimate states of both side by side; and then ``text_embeds`` too, the
    projected pooled output of the last.
    """
    import numpy as np
    import torch

    states, pooled = [], {}
    for folder in clip_encoders(source):
        inputs, outputs = signature_of(source, {}, folder)
        component = Component(
            name=folder, recipe=folder, source=source, inputs=inputs, outputs=outputs
        )
        ids = torch.from_numpy(token_ids(source, batch, step, rng, folder))
        with torch.no_grad():
            answers = build_from(component, folder, "")(ids)
        made = {
            spec.name: answer.numpy()
            for spec, answer in zip(outputs, answers, strict=True)
        }
        last = made["last_hidden_state"]
        states.append(made.get("penultimate_hidden_state", last))
        if "text_embeds" in made:
            pooled = {"text_embeds": made["text_embeds"]}
    return {"encoder_hidden_states": np.concatenate(states, axis=-1), **pooled}
