"""T5 encoder: it maps token ids to hidden states. Any text folder may hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import load_network, option, read_config
from harness.recipes.diffusion.clip_text import PROMPTS, prompts, tokenizer_of
from harness.recipes.diffusion.transformer import class_of
from harness.recipes.tokenizer import load_tokenizer
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import torch

FOLDERS = ("text_encoder", "text_encoder_2", "text_encoder_3")
"""Folders of a T5: first for PixArt, second for Flux, third for Stable Diffusion 3."""

ARCHITECTURE = "T5EncoderModel"

_MASKED = ("PixArtTransformer2DModel",)
"""Transformers whose pipelines pass the mask to T5 too; others do not mask padding."""

_PAD, _END, _FIRST_WORD = 0, 1, 3
"""T5's ids of padding, of the end and of the first word; 2 is an unknown word."""


def t5_folder(source: Source) -> str:
    """Return the folder whose configuration is of a T5 encoder; empty without one."""
    for folder in FOLDERS:
        if not (source.path / folder / "config.json").is_file():
            continue
        if ARCHITECTURE in (read_config(source, folder).get("architectures") or ()):
            return folder
    return ""


def _folder(source: Source) -> str:
    """Return the T5's folder.

    Raises:
        SuiteError: No text folder holds one.

    """
    if not (folder := t5_folder(source)):
        msg = (
            f"t5_encoder: no config.json of {', '.join(FOLDERS)} in {source.path} "
            f"names {ARCHITECTURE} under `architectures`; take t5_encoder out of "
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
    ids = TensorSpec(
        name="input_ids", shape=("batch", "tokens"), dtype="int32", draw="pipeline"
    )
    mask = TensorSpec(
        name="attention_mask", shape=("batch", "tokens"), dtype="int32", draw="pipeline"
    )
    out = TensorSpec(
        name="last_hidden_state", shape=("batch", "tokens", config["d_model"])
    )
    return ((ids, mask) if _masked(source, options) else (ids,)), (out,)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder behind ``forward(input_ids)``, or with its mask."""
    import torch
    from transformers import T5EncoderModel

    class T5(torch.nn.Module):
        """The encoder with tensors as inputs and hidden states as output."""

        def __init__(self, encoder: torch.nn.Module) -> None:
            super().__init__()
            self.network = encoder

        def forward(
            self, input_ids: torch.Tensor, *attention_mask: torch.Tensor
        ) -> torch.Tensor:
            mask = attention_mask[0] if attention_mask else None
            out: torch.Tensor = self.network(input_ids, attention_mask=mask)[0]
            return out

    folder = _folder(component.source)
    source = component.source
    loaded = load_network(source, folder, T5EncoderModel, attention=attention)
    return T5(loaded).eval()


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Tokenise prompts; without a tokenizer, draw as many words, the end and padding.

    Padding is masked in both cases.
    """
    import numpy as np

    source, batch, tokens = component.source, shapes["batch"], shapes["tokens"]
    folder = _folder(source)
    config = read_config(source, folder)
    tokenizer = load_tokenizer(source.path / tokenizer_of(folder))
    if tokenizer is not None:
        encoded = tokenizer(
            prompts(batch, step),
            padding="max_length",
            max_length=tokens,
            truncation=True,
        )
        drawn = {
            name: np.asarray(encoded[name], dtype=np.int32)
            for name in ("input_ids", "attention_mask")
        }
        return {spec.name: drawn[spec.name] for spec in component.inputs}
    ids = np.full((batch, tokens), _PAD, dtype=np.int32)
    for item in range(batch):
        turn, index = divmod(step + item, len(PROMPTS))
        # Two pieces a word; a repeated prompt is longer, so no two are equal.
        pieces = min(2 * len(PROMPTS[index].split()) + turn, tokens - 1)
        ids[item, :pieces] = rng.integers(
            _FIRST_WORD, config["vocab_size"], size=pieces
        )
        ids[item, pieces] = _END
    mask = (np.cumsum(ids == _END, axis=1) - (ids == _END) == 0).astype(np.int32)
    drawn = {"input_ids": ids, "attention_mask": mask}
    return {spec.name: drawn[spec.name] for spec in component.inputs}
