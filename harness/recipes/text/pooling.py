"""Task ``pooling``: one vector a text, as sentence-transformers makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.recipes.text import encoder
from harness.recipes.text.sample_texts import SENTENCES, tokenised

if TYPE_CHECKING:
    import numpy as np
    import torch

Options = Mapping[str, str | int | bool]

MODES = ("mean", "cls")
_KEYS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_KNOWN = {"Transformer", "Pooling", "Normalize"}


def signature(
    source: Source, options: Options
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Token ids to ``embeddings [batch, width]``."""
    shape = ("batch", encoder.width_of(source))
    # Unknown options are refused before the model's own files are complained about.
    both = encoder.signature(
        source, options, {"embeddings": shape}, ("pooling", "normalize")
    )
    pooling_of(source, options)
    return both


def pooling_of(source: Source, options: Options) -> tuple[str, bool]:
    """Return ``mean`` or ``cls``, and whether embeddings are normalised.

    As the model's own configuration says; the options ``pooling`` and ``normalize``
    say it where there is none, or otherwise.

    Raises:
        SuiteError: Nothing says how, or it is a way that there is no recipe for.

    """
    modules = encoder.sentence_modules(source)
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
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        msg = f"{path} cannot be read as JSON: {error}."
        raise SuiteError(msg) from None
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
    """Return the encoder, its pooling and perhaps the normalisation."""
    import torch

    mode, normalised = pooling_of(component.source, dict(component.options))

    class Pooled(torch.nn.Module):
        """Token ids in, one vector an item out."""

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
                # As sentence-transformers has it: no token at all makes zeros.
                pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            if normalised:
                # As torch's normalize has it, in plain operators: MNN takes the norm
                # that the dynamo exporter writes for that over the whole batch.
                length = (pooled * pooled).sum(1, keepdim=True).sqrt()
                pooled = pooled / length.clamp(min=1e-12)
            return pooled

    network = encoder.load(component, "AutoModel", attention, headless=True)
    return Pooled(encoder.wrap(component, network, "last_hidden_state")).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Sentences, cut or padded."""
    return tokenised(component, shapes, SENTENCES, step, rng)


def use(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what embeddings are for: the cosine of every pair, and a ranking.

    The first text is searched for among the others: ``ranking[i, j]`` says whether
    text i is nearer to it than text j. Needs three texts.
    """
    import numpy as np

    embeddings = outputs["embeddings"]
    if len(embeddings) < 3:  # noqa: PLR2004  # two have no order
        return {}
    length = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(length, 1e-12)
    cosines = unit @ unit.T
    near = cosines[0, 1:]
    return {
        "cosines": cosines[np.triu_indices(len(unit), 1)],
        "ranking": near[:, None] > near[None, :],
    }
