"""A checkpoint's JSON files, checked before anything is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from harness.core.errors import SuiteError
from harness.core.received import DamagedError, convert, read_json

T = TypeVar("T")

CONFIG_BYTES = 64 << 20
"""Largest size of such a file: an index of shards has a line for each tensor."""

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Size = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_List = Annotated[list[_Size], msgspec.Meta(max_length=64)]
_Sizes = _Size | _List | None
_Layers = Annotated[int, msgspec.Meta(ge=1, le=1024)]
_Number = float | None
_Numbers = float | list[float] | None
_Text = str | None
_Texts = list[str] | None


class _Known(msgspec.Struct, kw_only=True, rename={"class_name": "_class_name"}):
    """The keys that recipes and suites read, and what they may be; others are free."""

    class_name: _Text = None
    model_type: _Text = None
    norm_type: _Text = None
    activation_fn: _Text = None
    tokenizer_class: _Text = None
    addition_embed_type: _Text = None
    architectures: _Texts = None
    down_block_types: _Texts = None
    up_block_types: _Texts = None
    id2label: dict[str, Any] | None = None
    pad_token_id: _Int | list[_Int] | None = None
    type_vocab_size: _Int | None = None
    max_position_embeddings: _Int | None = None
    num_labels: _Int | None = None
    vocab_size: _Size | None = None
    hidden_size: _Size | None = None
    d_model: _Size | None = None
    projection_dim: _Size | None = None
    in_channels: _Size | None = None
    out_channels: _Size | None = None
    latent_channels: _Size | None = None
    conditioning_channels: _Size | None = None
    caption_channels: _Size | None = None
    norm_num_groups: _Size | None = None
    addition_time_embed_dim: _Size | None = None
    time_cond_proj_dim: _Size | None = None
    projection_class_embeddings_input_dim: _Size | None = None
    joint_attention_dim: _Size | None = None
    pooled_projection_dim: _Size | None = None
    num_embeds_ada_norm: _Size | None = None
    pos_embed_max_size: _Int | None = None
    layers_per_block: _Layers | _List | None = None
    cross_attention_dim: _Sizes = None
    attention_head_dim: _Sizes = None
    num_attention_heads: _Sizes = None
    num_heads: _Sizes = None
    num_key_value_heads: _Sizes = None
    n_head: _Sizes = None
    n_heads: _Sizes = None
    head_dim: _Sizes = None
    num_hidden_layers: _Layers | _List | None = None
    num_layers: _Layers | _List | None = None
    n_layer: _Layers | _List | None = None
    n_layers: _Layers | _List | None = None
    sample_size: _Sizes = None
    patch_size: _Sizes = None
    block_out_channels: _List | None = None
    conditioning_embedding_out_channels: _List | None = None
    encoder_block_out_channels: _List | None = None
    decoder_block_out_channels: _List | None = None
    scaling_factor: _Number = None
    shift_factor: _Number = None
    shift: _Number = None
    latents_mean: _Numbers = None
    latents_std: _Numbers = None


class Config(dict[str, Any]):
    """The keys of a checkpoint's JSON file.

    A key that is missing, or null, is a `SuiteError` where it is read by brackets.
    """

    def __init__(self, path: Path, keys: dict[str, Any]) -> None:
        super().__init__(keys)
        self._path = path

    def __getitem__(self, key: str) -> Any:
        """Return a value, which is not null."""
        value = super().__getitem__(key)
        return self.__missing__(key) if value is None else value

    def whole(self, key: str, default: int | None = None) -> int:
        """Return a whole number; the default, if there is one, where a key is missing.

        Raises:
            SuiteError: There is no such key, or it has a list: a number for each level.

        """
        if default is not None and self.get(key) is None:
            return default
        value = self[key]
        if not isinstance(value, int):
            msg = f"{self._path} has {key} = {value!r:.60}; one number is read here."
            raise SuiteError(msg)
        return value

    def __missing__(self, key: str) -> Any:  # as dict's
        """Refuse to read a key that the file lacks."""
        msg = (
            f"{self._path} has no {key!r}, which is read here; save it again with "
            "save_pretrained()."
        )
        raise SuiteError(msg)


def read_object(path: Path) -> Config:
    """Return the JSON object of a file; the keys that are read have their types.

    Raises:
        SuiteError: The file is no JSON, no object, or a value has another type.

    """
    keys = read_as(path, dict[str, Any])
    try:
        convert(keys, _Known)
    except DamagedError as error:
        msg = f"{path} is damaged: {error}. Correct it, or fetch it again."
        raise SuiteError(msg) from None
    return Config(path, keys)


def read_as(path: Path, kind: type[T]) -> T:
    """Return a JSON file of a checkpoint as a type that msgspec can check.

    Raises:
        SuiteError: The file cannot be read, is no JSON, or has another type.

    """
    try:
        return read_json(path, kind, CONFIG_BYTES)
    except (OSError, DamagedError) as error:
        msg = f"{path} cannot be read as JSON: {error}. Fetch it again."
        raise SuiteError(msg) from None
