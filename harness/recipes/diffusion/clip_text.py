"""CLIP text encoder: it maps token ids to hidden states and the pooled output.

Stable Diffusion XL and 3 have two CLIP encoders, and read the state before the last of
each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import (
    clip_encoders,
    load_network,
    option,
    read_config,
    tokenizer_of,
)
from harness.recipes.tokenizer import load_tokenizer
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes
from harness.recipes.wrapper import by_name, outputs_of

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
"""Texts of different lengths, including the empty one (classifier-free guidance)."""


FOLDER = "text_encoder"
_FOLDERS = (FOLDER, "text_encoder_2")
_PROJECTED = "CLIPTextModelWithProjection"
_PENULTIMATE = "penultimate_hidden_state"


@dataclass(frozen=True, slots=True)
class ClipText:
    """The recipe of the CLIP text encoder in one of a checkpoint's folders."""

    folder: str

    def signature(self, source: Source, options: Options) -> Signature:
        """Return the signature: ``input_ids [batch, tokens]`` to states, pooled output.

        The option adds ``penultimate_hidden_state`` as the last output, or leaves it
        out. Without the option, it is there if the checkpoint has a second CLIP
        encoder.
        """
        option(options, ("penultimate",))
        config = read_config(source, self.folder)
        kind = str(config.get("model_type", "clip"))
        if not kind.startswith("clip"):
            msg = (
                f"{source.path / self.folder / 'config.json'} is of a {kind!r} model, "
                "and the recipe of text encoders knows CLIP's alone. Take it out of "
                "`components`, or write a recipe of your own."
            )
            raise SuiteError(msg)
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
            outputs.append(TensorSpec(name=_PENULTIMATE, shape=hidden))
        ids = TensorSpec(
            name="input_ids", shape=("batch", tokens), dtype="int32", draw="tokens"
        )
        return (ids,), tuple(outputs)

    def build(self, component: Component, attention: str = "") -> torch.nn.Module:
        """Return the encoder behind ``forward(input_ids)``."""
        import transformers

        source = component.source
        names = tuple(spec.name for spec in component.outputs)
        penultimate = _PENULTIMATE in names

        def arguments(named: dict[str, torch.Tensor]) -> dict[str, Any]:
            return {**named, "output_hidden_states": penultimate}

        def answer(made: Any) -> tuple[torch.Tensor, ...]:
            return tuple(
                made.hidden_states[-2] if name == _PENULTIMATE else getattr(made, name)
                for name in names
            )

        projected = _is_projected(read_config(source, self.folder))
        network = getattr(transformers, _PROJECTED if projected else "CLIPTextModel")
        loaded = load_network(source, self.folder, network, attention=attention)
        return by_name(loaded, component.inputs, answer, arguments)

    def realistic(
        self, component: Component, shapes: Sizes, step: int, rng: Rng
    ) -> Drawn:
        """Tokenise prompts; without a tokenizer, draw begin, words and end."""
        source, batch = component.source, shapes["batch"]
        return {"input_ids": token_ids(source, batch, step, rng, self.folder)}


def _is_projected(config: Mapping[str, Any]) -> bool:
    return _PROJECTED in (config.get("architectures") or ())


def token_ids(
    source: Source, batch: int, step: int, rng: Rng, folder: str = FOLDER
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
    # CLIP's vocabulary ends with its begin and end markers. The tokenizer of the first
    # encoder pads with the end marker, that of the second with "!", the first word.
    end = config["vocab_size"] - 1
    ids = np.full((batch, tokens), end if folder == FOLDER else 0, dtype=np.int32)
    ids[:, 0] = end - 1
    for item, text in enumerate(texts):
        words = min(len(text.split()), tokens - 2)
        ids[item, 1 : 1 + words] = rng.integers(0, end - 1, size=words)
        ids[item, 1 + words] = end
    return ids


def prompts(batch: int, step: int) -> list[str]:
    """Return texts of which no two are equal; each step begins one text further."""
    count = len(PROMPTS)
    texts = [PROMPTS[(step + item) % count] for item in range(batch)]
    # Repeated texts get a number.
    texts[count:] = [f"{i // count} {t}" for i, t in enumerate(texts) if i >= count]
    return texts


def prompt_states(source: Source, batch: int, step: int, rng: Rng) -> Drawn:
    """Return the outputs of a pipeline's text encoders for prompts, float32.

    ``encoder_hidden_states [batch, tokens, width]`` is the last state of a single
    encoder, or the penultimate states of two, side by side. With two encoders there is
    also ``text_embeds``, the projected pooled output of the last one.
    """
    import numpy as np

    states, pooled = [], {}
    for folder in clip_encoders(source):
        ids = token_ids(source, batch, step, rng, folder)
        made = outputs_of(ClipText(folder), folder, source, {"input_ids": ids})
        states.append(made.get(_PENULTIMATE, made["last_hidden_state"]))
        if "text_embeds" in made:
            pooled = {"text_embeds": made["text_embeds"]}
    if not states:
        msg = (
            f"{source.path} has no text encoder of CLIP, so real prompts cannot be "
            "drawn; take other `profiles` than 'realistic'."
        )
        raise SuiteError(msg)
    return {"encoder_hidden_states": np.concatenate(states, axis=-1), **pooled}


FIRST, SECOND = map(ClipText, _FOLDERS)
"""The recipes of Stable Diffusion's first encoder, and of the second in XL and 3."""
