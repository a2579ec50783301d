"""T5 encoder: it maps token ids to hidden states. Any text folder may hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import (
    T5,
    TEXT_FOLDERS,
    load_network,
    option,
    read_config,
    t5_folder,
    tokenizer_of,
)
from harness.recipes.diffusion.clip_text import PROMPTS, prompts
from harness.recipes.diffusion.transformer import class_of
from harness.recipes.tokenizer import load_tokenizer
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes
from harness.recipes.wrapper import first

if TYPE_CHECKING:
    import torch

_MASKED = ("PixArtTransformer2DModel",)
"""Transformers whose pipelines pass the mask to T5 too; others do not mask padding."""

_PAD, _END, _FIRST_WORD = 0, 1, 3
"""T5's ids of padding, of the end and of the first word; 2 is an unknown word."""


def _folder(source: Source) -> str:
    """Return the T5's folder.

    Raises:
        SuiteError: No text folder holds one.

    """
    if not (folder := t5_folder(source)):
        msg = (
            f"t5_encoder: no config.json of {', '.join(TEXT_FOLDERS)} in {source.path} "
            f"names {T5} under `architectures`; take t5_encoder out of "
            "`components` or correct the configuration."
        )
        raise SuiteError(msg)
    return folder


def _masked(source: Source, options: Options) -> bool:
    """Whether the mask is an input: by the suite's option, or as in the pipeline."""
    if "attention_mask" in options:
        return bool(options["attention_mask"])
    return class_of(source) in _MASKED


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: ``input_ids [batch, tokens]`` to ``last_hidden_state``.

    The option ``attention_mask`` adds the mask as an input, or leaves it out. Without
    the option, PixArt has it, because its pipeline does.
    """
    option(options, ("attention_mask",))
    config = read_config(source, _folder(source))
    names = ["input_ids"]
    if _masked(source, options):
        names.append("attention_mask")
    inputs = tuple(
        TensorSpec(name=name, shape=("batch", "tokens"), dtype="int32", draw="pipeline")
        for name in names
    )
    out = TensorSpec(
        name="last_hidden_state", shape=("batch", "tokens", config["d_model"])
    )
    return inputs, (out,)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder behind ``forward(input_ids)``, or with its mask."""
    from transformers import T5EncoderModel

    source = component.source
    loaded = load_network(source, _folder(source), T5EncoderModel, attention=attention)
    return first(loaded, component.inputs)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Tokenise prompts; without a tokenizer, draw as many words, the end and padding.

    Padding is masked in both cases.
    """
    import numpy as np

    source, batch, tokens = component.source, shapes["batch"], shapes["tokens"]
    folder = _folder(source)
    config = read_config(source, folder)
    tokenizer = load_tokenizer(source.path / tokenizer_of(folder))
    drawn: Any
    if tokenizer is not None:
        drawn = tokenizer(
            prompts(batch, step),
            padding="max_length",
            max_length=tokens,
            truncation=True,
        )
    else:
        ids = np.full((batch, tokens), _PAD)
        for item in range(batch):
            turn, index = divmod(step + item, len(PROMPTS))
            # Two pieces a word; a repeated prompt is longer, so no two are equal.
            pieces = min(2 * len(PROMPTS[index].split()) + turn, tokens - 1)
            ids[item, :pieces] = rng.integers(
                _FIRST_WORD, config["vocab_size"], size=pieces
            )
            ids[item, pieces] = _END
        mask = np.cumsum(ids == _END, axis=1) - (ids == _END) == 0
        drawn = {"input_ids": ids, "attention_mask": mask}
    return {
        spec.name: np.asarray(drawn[spec.name], dtype=np.int32)
        for spec in component.inputs
    }
