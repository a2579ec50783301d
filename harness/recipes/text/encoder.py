"""Functions that text tasks share: they read a transformers encoder from its folder.

`save_pretrained` writes this folder: ``config.json``, weights and a tokenizer at its
root. A task adds its head and names its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import load_network, option, read_config
from harness.recipes.configuration import Config
from harness.recipes.types import Options, Signature
from harness.recipes.wrapper import by_name

if TYPE_CHECKING:
    import torch

OPTIONS = ("masked",)
"""Options of every task. With ``masked``, a realistic batch's last item is padding."""

_WIDTHS = ("hidden_size", "dim", "d_model", "n_embd", "n_embed", "emb_dim")
"""Names that configurations have for the size of a state."""


def inputs(source: Source) -> tuple[TensorSpec, ...]:
    """Return ``input_ids``, ``attention_mask`` and, if the model has several, types.

    A model with fewer than two types of tokens needs no such input: RoBERTa has one
    type, DistilBERT none.
    """
    types = read_config(source, "").get("type_vocab_size") or 0
    kinds = {"input_ids": "tokens", "attention_mask": "mask"}
    if types > 1:
        kinds |= {"token_type_ids": "segments"}
    return tuple(
        TensorSpec(name=name, shape=("batch", "tokens"), dtype="int32", draw=draw)
        for name, draw in kinds.items()
    )


def signature(
    source: Source,
    options: Options,
    outputs: Mapping[str, tuple[int | str, ...]],
    allowed: tuple[str, ...] = (),
) -> Signature:
    """Return a task's signature; `outputs` has the shape of each output by name.

    Raises:
        SuiteError: An option is unknown, or the network does not have the task.

    """
    option(options, (*OPTIONS, *allowed))
    config = read_config(source, "")
    if "logits" in outputs and config.get("is_encoder_decoder"):
        msg = (
            f"{source.path} is an encoder and a decoder (model_type "
            f"{config.get('model_type')!r}), whose classification reads the state at "
            "the last end token, a place that differs from text to text and that an "
            "exported graph cannot follow. Test `default`, its hidden states, under "
            "`components`, or classify with an encoder model."
        )
        raise SuiteError(msg)
    return inputs(source), tuple(
        TensorSpec(name=name, shape=shape) for name, shape in outputs.items()
    )


def width_of(source: Source) -> int:
    """Return the size of a hidden state."""
    return width_in(read_config(source, ""))


def width_in(config: Config) -> int:
    """Return the size of a hidden state that a configuration says."""
    if config.get("model_type") == "opt":  # it projects its states to that width
        projected = config.get("word_embed_proj_dim")
        return config.whole("word_embed_proj_dim" if projected else "hidden_size")
    for key in _WIDTHS:
        if config.get(key) is not None:
            return config.whole(key)
    raise KeyError(_WIDTHS[0])  # `describe` makes the message


def labels_of(source: Source) -> int:
    """Return the number of a head's labels; transformers omits its default of two."""
    config = read_config(source, "")
    return int(config.get("num_labels") or len(config.get("id2label") or ()) or 2)


def load(
    component: Component, auto: str, attention: str, *, headless: bool = False
) -> torch.nn.Module:
    """Load or draw the network that an Auto class of transformers chooses.

    Args:
        component: The component, which has the source.
        auto: Name of the Auto class, for example ``AutoModel``.
        attention: ``eager`` or ``sdpa``; empty for the default of the class.
        headless: Whether to leave out the unused pooler, which some checkpoints lack.

    Raises:
        SuiteError: There is no such network for the checkpoint's configuration.

    """
    import inspect

    network = _chosen(component.source, auto)
    takes = inspect.signature(network.__init__).parameters
    pools = headless and "add_pooling_layer" in takes
    return load_network(
        component.source,
        "",
        network,
        attention=attention,
        arguments={"add_pooling_layer": False} if pools else {},
    )


def _chosen(source: Source, auto: str) -> Any:
    import transformers

    kind = read_config(source, "").get("model_type")
    try:
        config = transformers.AutoConfig.from_pretrained(source.path)
        mapping = getattr(transformers, auto)._model_mapping  # noqa: SLF001  # no public way
        found = mapping[type(config)]
    except (KeyError, ValueError):
        msg = (
            f"{source.path}: transformers {transformers.__version__} has no {auto} for "
            f"model_type {kind!r}, so this task cannot be built from it; choose "
            "another under `components`."
        )
        raise SuiteError(msg) from None
    return found[0] if isinstance(found, tuple) else found


def wrap(
    component: Component, network: torch.nn.Module, *names: str
) -> torch.nn.Module:
    """Return the network behind ``forward(input_ids, attention_mask, ...)``.

    It returns the values `names` of the network's output: one tensor, or a tuple.
    """

    def answer(made: Any) -> Any:
        held = tuple(getattr(made, name) for name in names)
        return held if len(held) > 1 else held[0]

    return by_name(network, component.inputs, answer)
