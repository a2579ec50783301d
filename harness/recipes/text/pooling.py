"""Task ``pooling``: one vector for each text, as in sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.recipes.configuration import read_object
from harness.recipes.text import encoder
from harness.recipes.text.folder import sentence_modules
from harness.recipes.text.sample_texts import SENTENCES, tokenised
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import numpy as np
    import torch


MODES = ("mean", "cls")
_KEYS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_KNOWN = {"Transformer", "Pooling", "Normalize"}


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: token ids to ``embeddings [batch, width]``."""
    shape = ("batch", encoder.width_of(source))
    # Errors about unknown options come before errors about the model's files.
    both = encoder.signature(
        source, options, {"embeddings": shape}, ("pooling", "normalize")
    )
    pooling_of(source, options)
    return both


def pooling_of(source: Source, options: Options) -> tuple[str, bool]:
    """Return ``mean`` or ``cls``, and whether embeddings are normalised.

    Both come from the model's own configuration. The options ``pooling`` and
    ``normalize`` replace it, and are needed if there is none.

    Raises:
        SuiteError: Pooling is not configured, or its kind has no recipe.

    """
    modules = sentence_modules(source)
    mode = options.get("pooling")
    if mode is not None and mode not in MODES:
        msg = f"option 'pooling' must be one of {', '.join(MODES)}, got {mode!r}."
        raise SuiteError(msg)
    if odd := [kind for kind, _ in modules if kind not in _KNOWN]:
        msg = (
            f"{source.path / 'modules.json'} runs a {odd[0]} after the encoder; this "
            f"recipe has {', '.join(sorted(_KNOWN))}. Write a recipe of your own, or "
            "test `default`."
        )
        raise SuiteError(msg)
    kinds = dict(modules)
    if mode is None:
        mode = _configured(source, kinds.get("Pooling"))
    normalised = options.get("normalize", "Normalize" in kinds)
    return str(mode), bool(normalised)


def _configured(source: Source, folder: str | None) -> str:
    path = source.path / (folder or "1_Pooling") / "config.json"
    say = f'set pooling = "{MODES[0]}" or "{MODES[1]}" under its [component.*]'
    if not path.is_file():
        msg = f"{source.path} does not say how it pools ({path} is missing); {say}."
        raise SuiteError(msg)
    config = read_object(path)
    chosen = [
        key for key, on in config.items() if on and key.startswith("pooling_mode_")
    ]
    modes = [_KEYS.get(key, key.removeprefix("pooling_mode_")) for key in chosen]
    if isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in MODES:
        msg = (
            f"{path} pools by {' and '.join(modes) or 'nothing'}; there is a recipe "
            f"for {' or '.join(MODES)} alone. {say.capitalize()}, or write a recipe of "
            "your own."
        )
        raise SuiteError(msg)
    return modes[0]


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the encoder with its pooling and optional normalisation."""
    import torch

    mode, normalised = pooling_of(component.source, dict(component.options))

    class Pooled(torch.nn.Module):
        """The encoder with token ids as input and a vector for each item as output."""

        def __init__(self, states: torch.nn.Module) -> None:
            super().__init__()
            self.states = states

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.states(*tensors)
            attention_mask = tensors[1]
            if mode == "cls":
                pooled = hidden[:, 0]
            else:
                weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
                # As in sentence-transformers: an item without tokens gives zeros.
                pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            if normalised:
                # The same as torch's normalize, in plain operators. For normalize, the
                # dynamo exporter writes a norm that MNN takes over the whole batch.
                length = (pooled * pooled).sum(1, keepdim=True).sqrt()
                pooled = pooled / length.clamp(min=1e-12)
            return pooled

    network = encoder.load(component, "AutoModel", attention, headless=True)
    return Pooled(encoder.wrap(component, network, "last_hidden_state")).eval()


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw sentences, cut or padded."""
    return tokenised(component, shapes, SENTENCES, step, rng)


def use(outputs: Mapping[str, np.ndarray]) -> Drawn:
    """Return the cosine of every pair of embeddings, and a ranking.

    The ranking compares the first text with the others: ``ranking[i, j]`` is whether
    text i is nearer to it than text j. It needs three texts.
    """
    import numpy as np

    embeddings = outputs["embeddings"]
    if len(embeddings) < 3:  # noqa: PLR2004  # two texts have no order
        return {}
    length = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(length, 1e-12)
    cosines = unit @ unit.T
    near = cosines[0, 1:]
    return {
        "cosines": cosines[np.triu_indices(len(unit), 1)],
        "ranking": near[:, None] > near[None, :],
    }
