"""Decoders that write text: logits, and one step with a cache of keys and values.

`GENERATION` returns the logits of every token. `with_cache` is one step of the decoding
loop: it reads one token and what earlier tokens left in the cache, and returns the
logits with the longer cache. Inputs and outputs have the names that Optimum gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import option, read_config
from harness.recipes.configuration import Config
from harness.recipes.text import encoder
from harness.recipes.text.folder import longest
from harness.recipes.text.sample_texts import SENTENCES, tokenised
from harness.recipes.text.tasks import TextTask
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes, normal

if TYPE_CHECKING:
    import numpy as np
    import torch

NETWORK = "AutoModelForCausalLM"

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_key_value_heads", "num_attention_heads", "n_head", "n_heads")
"""Names that configurations have for the number of layers, and of heads of a cache."""


def _logits(source: Source) -> dict[str, tuple[int | str, ...]]:
    return {"logits": ("batch", "tokens", read_config(source, "")["vocab_size"])}


GENERATION = TextTask(outputs=_logits, network=NETWORK, texts=(SENTENCES,))


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: a token, a mask and the cache to logits and the cache.

    The cache has keys and values of each layer, ``[batch, heads, past, width]``, and
    one token more in the outputs.
    """
    option(options, ())
    config = read_config(source, "")
    if config.get("is_encoder_decoder"):
        msg = (
            f"{source.path} is an encoder and a decoder (model_type "
            f"{config.get('model_type')!r}), whose cache also holds the encoder's keys "
            "and values; this recipe knows decoders alone. Write a recipe of your own."
        )
        raise SuiteError(msg)
    layers, heads, width = _cache_of(config)
    parts = [f"{at}.{part}" for at in range(layers) for part in ("key", "value")]
    inputs = (
        TensorSpec(name="input_ids", shape=("batch", 1), dtype="int32", draw="tokens"),
        TensorSpec(
            name="attention_mask",
            shape=("batch", "past+1"),
            dtype="int32",
            draw="mask",
        ),
        *(
            normal(f"past_key_values.{part}", "batch", heads, "past", width)
            for part in parts
        ),
    )
    outputs = (
        TensorSpec(name="logits", shape=("batch", 1, config["vocab_size"])),
        *(
            TensorSpec(name=f"present.{part}", shape=("batch", heads, "past+1", width))
            for part in parts
        ),
    )
    return inputs, outputs


def unfit(source: Source, sizes: Sizes) -> tuple[str, str]:
    """Return ``past`` and the reason, if there is no position for the next token."""
    most = longest(source)
    if most is None or sizes.get("past", 0) < most:
        return "", ""
    return "past", f"it has {most:,} positions, so at most {most - 1:,} tokens before"


def _cache_of(config: Config) -> tuple[int, int, int]:
    """Return the number of layers, of heads, and the size of a key."""
    layers, every = _first(config, _LAYERS), _first(config, _HEADS[1:])
    width = config.whole("head_dim", 0) or encoder.width_in(config) // every
    return layers, config.whole(_HEADS[0], every), width


def _first(config: Config, names: tuple[str, ...]) -> int:
    for name in names:
        if config.get(name):
            return config.whole(name)
    raise KeyError(names[0])  # `describe` makes the message


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the decoder behind a ``forward`` of a token, a mask and the cache."""
    import torch
    from transformers import DynamicCache

    network = encoder.load(component, NETWORK, attention)

    class Step(torch.nn.Module):
        """One step: the cache is flat, keys and values of each layer in turn."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(
            self, token: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            cache = DynamicCache()
            for layer, (key, value) in enumerate(
                zip(past[::2], past[1::2], strict=True)
            ):
                cache.update(key, value, layer)
            made = self.network(
                input_ids=token,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )
            return made.logits, *_flat(made.past_key_values)

    return Step().eval()


def _flat(cache: Any) -> list[torch.Tensor]:
    """Return keys and values of each layer in turn."""
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw texts, and let the network itself make the cache of all but the last token.

    Padding is on the left, so that the last token is a word.
    """
    import numpy as np
    import torch
    from transformers import DynamicCache

    texts = _on_the_left(_texts(component, shapes, step, rng))
    ids, mask = texts["input_ids"], texts["attention_mask"]
    network = encoder.load(component, NETWORK, "")
    before = {
        name: torch.from_numpy(value[:, :-1].astype(np.int64))
        for name, value in texts.items()
    }
    with torch.no_grad():
        # A cache of its own keeps every token, also for a network that looks back at a
        # few alone.
        made = network(**before, past_key_values=DynamicCache(), use_cache=True)
    past = [tensor.numpy() for tensor in _flat(made.past_key_values)]
    names = [spec.name for spec in component.inputs]
    return dict(zip(names, (ids[:, -1:], mask, *past), strict=True))


def _texts(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Return ids and mask ``[batch, past + 1]``."""
    sizes = {"batch": shapes["batch"], "tokens": shapes["past"] + 1}
    (ids, mask), source = component.inputs[:2], component.source
    whole = Component(
        name=component.name,
        recipe=component.recipe,
        source=source,
        inputs=(ids, mask),
        outputs=component.outputs[:1],
    )
    return tokenised(whole, sizes, SENTENCES, step, rng)


def _on_the_left(texts: Drawn) -> Drawn:
    """Move each text to the end of its row, with the padding before it."""
    import numpy as np

    def moved(rows: np.ndarray) -> np.ndarray:
        words = texts["attention_mask"].sum(axis=1)
        turns = rows.shape[1] - words
        return np.stack(
            [np.roll(row, turn) for row, turn in zip(rows, turns, strict=True)]
        )

    return {name: moved(rows) for name, rows in texts.items()}
