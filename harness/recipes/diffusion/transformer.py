"""Diffusion transformer: one denoising step, for the class in its configuration."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.core.toml_file import did_you_mean
from harness.recipes.checkpoint import load_network, option, read_config
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes
from harness.recipes.wrapper import first

if TYPE_CHECKING:
    import torch

FOLDER = "transformer"

CLASSES = {
    "SD3Transformer2DModel": "harness.recipes.diffusion.transformer_sd3",
    "FluxTransformer2DModel": "harness.recipes.diffusion.transformer_flux",
    "PixArtTransformer2DModel": "harness.recipes.diffusion.transformer_pixart",
    "DiTTransformer2DModel": "harness.recipes.diffusion.transformer_dit",
}
"""The module that knows the inputs of each class in ``transformer/config.json``."""

_LEGACY = "Transformer2DModel"
_BY_NORM = {
    "ada_norm_zero": "DiTTransformer2DModel",
    "ada_norm_single": "PixArtTransformer2DModel",
}
"""The classes that replace the former common class of DiT and PixArt, by ``norm_type``.
Checkpoints on the hub still name the old class, and diffusers loads the new one."""


def class_of(source: Source) -> str:
    """Return the class that diffusers loads; empty if there is no transformer."""
    if not (source.path / FOLDER / "config.json").is_file():
        return ""
    config = read_config(source, FOLDER)
    name = str(config.get("_class_name", ""))
    if name == _LEGACY:
        return _BY_NORM.get(str(config.get("norm_type")), name)
    return name


def _family(source: Source) -> ModuleType:
    """Return the module of the class that the configuration names.

    Raises:
        SuiteError: There is no module for the class.

    """
    name = class_of(source)
    if name not in CLASSES:
        msg = (
            f"transformer: no recipe knows the class {name!r} of "
            f"{source.path / FOLDER / 'config.json'}; "
            f"{did_you_mean(name, tuple(CLASSES))} "
            "A recipe of your own is named by `recipe` under [component.transformer]."
        )
        raise SuiteError(msg)
    return importlib.import_module(CLASSES[name])


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: ``hidden_states`` and conditions to ``out_sample``."""
    option(options, ())
    config = read_config(source, FOLDER)
    signed: Signature = _family(source).signature(config)
    return signed


def unfit(source: Source, sizes: Sizes) -> tuple[str, str]:
    """Return the size that the class does not take, and why; empty if it takes all."""
    say = getattr(_family(source), "unfit", None)
    found: tuple[str, str] = say(sizes) if say else ("", "")
    return found


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the transformer behind a tensor-only ``forward``."""
    del attention  # diffusers decides by processor; the default one is exported
    source = component.source
    arguments = getattr(_family(source), "arguments", dict)
    return first(
        load_network(source, FOLDER, class_of(source)), component.inputs, arguments
    )


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw noisy latents and conditions as the class's pipeline makes them."""
    drawn: Drawn = _family(component.source).realistic(component, shapes, step, rng)
    return drawn
