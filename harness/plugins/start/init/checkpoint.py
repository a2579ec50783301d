"""The first suite of a diffusers or transformers checkpoint.

Only configurations and the names of weight files are read.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from harness.core.case import PROFILES, Component, Source
from harness.core.errors import SuiteError
from harness.judge.tolerance import GROUPS, TIERS
from harness.plugins.pipelines.families import kinds_of
from harness.plugins.pipelines.read import is_fed, vae_factor
from harness.plugins.start.init.render import Choice, no_variant, path_from, render
from harness.recipes import describe, discover, weight_folders
from harness.recipes.checkpoint import WEIGHTS, read_config, weight_files
from harness.recipes.diffusion.transformer import class_of
from harness.recipes.diffusion.vae import factor
from harness.recipes.named import check_named, untested
from harness.recipes.text.folder import DEPLOYED, is_encoder, longest
from harness.suite.tables import symbols_of

LARGE: Final = 32
"""Latents wider than this are compared layer by layer at a smaller size."""

_TOKENS: Final = {"text_tokens": 333, "tokens": 256}
"""Tokens of a prompt for Stable Diffusion 3: T5's, and the sum of CLIP's and T5's."""

_TEXTS: Final = {3: 32, 1: 7, 2: 65}
"""Tokens of texts, by the size of their batch."""

_CONVOLVES: Final = frozenset(
    ("unet", "controlnet", "controlled_unet", "vae_encoder", "vae_decoder")
)
_NOT_BY_DYNAMO: Final = ("PixArtTransformer2DModel",)
"""Transformers for which dynamo (torch 2.13) writes a file that no runtime loads."""

_TANH_GELU: Final = ("FluxTransformer2DModel", "SD3Transformer2DModel")
"""Transformers whose GELU has the tanh form, though their configurations do not say."""

_ACTIVATIONS: Final = ("hidden_activation", "hidden_act", "activation_function")
_TANH_FORMS: Final = {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}
_TANH_MODELS: Final = ("gpt2", "gemma")
"""Names that configurations of text models have for an activation, its values that are
a GELU of the tanh form, and models that have it where nothing is said."""

_FLOORS_A_VALUE: Final = 2 * 4.6e-3
"""Error in floors that a GroupNorm may have over one flat group, per value of it.

Twice the worst of 200 draws in fixtures/digits (38.1 floors of 8,192 values). Fixtures
sd3 and sdxl have 33.6 and 36.8 of 12,288, Stable Diffusion 1.5 has 1,030 of 393,216.
"""

_LEFT_A_VALUE: Final = 2 * 9.8e-4
"""What may be left of that error at the encoder's outputs.

Twice the worst seen: 12 floors of 12,288 values in fixtures/sd3. In 48 draws at twice
its size it was 20.4 of 32,768, in 200 draws of fixtures/digits 4.3 of 8,192.
"""


def texts_of_checkpoint(
    checkpoint: Path, folder: Path, choice: Choice | None = None
) -> tuple[tuple[str, str], list[str]]:
    """Return both TOML files, and a sentence about each surprise for the user.

    `choice` says which variants run at first; left out, it is fp32 alone.

    Raises:
        SuiteError: The checkpoint has no component that a recipe knows, a configuration
            cannot be read, a named part is missing, or some weights are missing.

    """
    choice = choice or no_variant()
    source = Source(path=checkpoint)
    check_named(source)
    known, unknown = _components(source)
    drawn = _lacks_weights(source, known)
    notices = [f"left out {name}: {why}" for name, why in unknown.items()]
    if beside := untested(source):
        notices.append(f"not tested: {', '.join(beside)}; no recipe is for them")
    if drawn:
        notices.append(f"{checkpoint} has no weights: they will be drawn from seed 0")

    for name, why in choice.left_out.items():
        unknown[name] = why
        del known[name]
    symbols = symbols_of(*known.values())
    size = _latent_size(source, known)
    encoder = is_encoder(source)
    # A transformer's positions have one size, so its export has that size too.
    large = size > LARGE and "height" in symbols and "transformer" not in known
    values = _largest_group(source, known)
    allowed = TIERS["standard"]
    floors = math.ceil(_FLOORS_A_VALUE * values)
    left = math.ceil(_LEFT_A_VALUE * values)
    pipelines = [
        kind
        for kind, roles in kinds_of(source).items()
        if all(role in known for role in roles) and is_fed(kind, source)
    ]
    return render(
        "checkpoint",
        choice=choice,
        components=list(known),
        unknown=unknown,
        path=path_from(folder, checkpoint),
        drawn=drawn,
        encoder=encoder,
        deployed=DEPLOYED,
        axes=[s for s in symbols if encoder or large or s == "batch"],
        large=large,
        shapes=_texts(longest(source)) if encoder else _shapes(symbols, size),
        profiles=PROFILES,
        convolves=bool(_CONVOLVES & set(known)),
        by_torchscript="transformer" in known and class_of(source) in _NOT_BY_DYNAMO,
        pipelines=pipelines,
        pixels=size * vae_factor(source) if pipelines else 0,
        groups=GROUPS,
        values=f"{values:,}",
        operators=_rounded(source, known),
        floors=floors if floors > (allowed["layers"].floors or 0) else 0,
        left=left if left > (allowed["outputs"].floors or 0) else 0,
    ), notices


def _rounded(source: Source, names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return operators that a runtime may round more, by component.

    Each has the module whose value it makes; empty for modules all over the component.
    """
    found: dict[str, dict[str, str]] = {}
    if "transformer" in names:
        activation = read_config(source, "transformer").get("activation_fn")
        if activation == "gelu-approximate" or class_of(source) in _TANH_GELU:
            found["transformer"] = {"gelu": ""}
    if is_encoder(source):
        config = read_config(source, "")
        said = {str(config.get(key)) for key in _ACTIVATIONS}
        if said & _TANH_FORMS or str(config.get("model_type")) in _TANH_MODELS:
            found |= {name: {"gelu": ""} for name in names}
    decoder = read_config(source, "vae") if "vae_decoder" in names else {}
    if decoder.get("_class_name") == "AutoencoderTiny":  # it limits its input by a tanh
        found["vae_decoder"] = {"after tanh": "", "tanh": "decoder"}
    return found


def _components(source: Source) -> tuple[dict[str, Component], dict[str, str]]:
    """Return the components by name, and the reason why other folders are none."""
    known, unknown = dict[str, Component](), dict[str, str]()
    for name in discover(source):
        # A damaged file is an error. A network that no recipe knows is left out, and
        # the other networks make a suite.
        for folder in weight_folders(name, source):
            read_config(source, folder)
        try:
            known[name] = describe(name, name, source)
        except SuiteError as error:
            unknown[name] = str(error)
    if not known:
        raise SuiteError(next(iter(unknown.values())))
    return known, unknown


def _lacks_weights(source: Source, names: Iterable[str]) -> bool:
    """Whether a checkpoint has configurations and no weights.

    Where some folders have weights and some have none, a download may have stopped half
    way. That is an error.
    """
    folders = dict.fromkeys(f for n in names for f in weight_folders(n, source))
    bare = [folder for folder in folders if not _has_weights(source.path / folder)]
    if 0 < len(bare) < len(folders):
        msg = (
            f"{source.path} has weights in some of its folders, and none in "
            f"{', '.join(bare)}: fetch them, or give a copy of the checkpoint without "
            "those folders. Random weights are drawn only where there are none at all."
        )
        raise SuiteError(msg)
    return bool(bare)


def _has_weights(home: Path) -> bool:
    # Pickles count too: loading refuses them by a message, which a seed would hide.
    return bool(weight_files(home)) or any(p.suffix in WEIGHTS for p in home.iterdir())


def _texts(most: int | None) -> list[tuple[str, dict[str, int], bool]]:
    note = "tokens of a text, cut or padded"
    return [
        (note, {"batch": batch, "tokens": min(tokens, most or tokens)}, True)
        for batch, tokens in _TEXTS.items()
    ]


def _shapes(
    symbols: Iterable[str], size: int
) -> list[tuple[str, dict[str, int], bool]]:
    """Return shapes of one item and of two, at sizes whose layers fit into memory."""
    spatial = [symbol for symbol in symbols if symbol != "batch"]
    large = size > LARGE and bool(spatial)
    # Not square, so that exchanged axes are detected.
    small = {"height": LARGE, "width": LARGE * 3 // 2} if large else {}
    tokens = _TOKENS | {"image_tokens": (size // 2) ** 2}
    one = small | tokens
    return [
        (
            "height and width are of the latents",
            {"batch": 1} | {symbol: one.get(symbol, size) for symbol in spatial},
            True,
        ),
        (
            "two items, which a runtime can mix up",
            {"batch": 2} | {symbol: tokens.get(symbol, size) for symbol in spatial},
            not large,
        ),
    ]


def _largest_group(source: Source, names: Collection[str]) -> int:
    """Return the number of values in a group of a VAE encoder's first GroupNorm."""
    if "vae_encoder" not in names:
        return 0
    config = read_config(source, "vae")
    stages, groups = config.get("block_out_channels"), config.get("norm_num_groups")
    if not (stages and groups):  # AutoencoderTiny normalises nothing
        return 0
    size = _latent_size(source, names)
    # As in `_shapes`: for large pictures, layers are compared at a smaller size.
    area = LARGE * LARGE * 3 // 2 if size > LARGE else size * size
    return int(stages[0] // groups * area * factor(config) ** 2)


def _latent_size(source: Source, names: Collection[str]) -> int:
    if "unet" in names:
        return _first(read_config(source, "unet").get("sample_size"), 64)
    if "transformer" in names:
        config = read_config(source, "transformer")
        return min(LARGE, _first(config.get("sample_size"), LARGE))
    if "vae_decoder" in names:
        config = read_config(source, "vae")
        return max(1, _first(config.get("sample_size"), 256) // factor(config))
    return 16


def _first(size: object, default: int) -> int:
    """Return a size that diffusers writes as a number or a pair, or else `default`."""
    if isinstance(size, list) and size:
        size = size[0]
    return size if isinstance(size, int) else default
