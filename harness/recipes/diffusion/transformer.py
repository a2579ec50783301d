"""Diffusion transformer: one denoising step, by the class that its config names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.core.errors import SuiteError
from harness.core.toml_file import did_you_mean
from harness.recipes.checkpoint import option, read_config

if TYPE_CHECKING:
    import numpy as np
    import torch

FOLDER = "transformer"

CLASSES = {
    "SD3Transformer2DModel": "harness.recipes.diffusion.transformer_sd3",
    "FluxTransformer2DModel": "harness.recipes.diffusion.transformer_flux",
    "PixArtTransformer2DModel": "harness.recipes.diffusion.transformer_pixart",
    "DiTTransformer2DModel": "harness.recipes.diffusion.transformer_dit",
}
"""Class in ``transformer/config.json`` to the module that knows its inputs."""

_LEGACY = "Transformer2DModel"
_BY_NORM = {
    "ada_norm_zero": "DiTTransformer2DModel",
    "ada_norm_single": "PixArtTransformer2DModel",
}
"""What the one class of DiT and PixArt was split into, by ``norm_type``. Checkpoints
on the hub still name the one, and diffusers loads what it was split into."""


def class_of(source: Source) -> str:
    """Return the class that diffusers loads, empty where there is no transformer."""
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
        SuiteError: There is none for it.

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


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``hidden_states`` and its class's conditions to ``out_sample``."""
    option(options, ())
    config = read_config(source, FOLDER)
    signed: tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]] = _family(
        source
    ).signature(config)
    return signed


def unfit(source: Source, sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return which size the class does not take and why; empty where it takes all."""
    say = getattr(_family(source), "unfit", None)
    found: tuple[str, str] = say(sizes) if say else ("", "")
    return found


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the transformer behind a tensor-only ``forward``."""
    del attention  # diffusers decides by processor; its default exports as it is
    network: torch.nn.Module = _family(component.source).build(component.source)
    return network.eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Noisy latents and conditions as the class's pipeline makes them."""
    drawn: dict[str, np.ndarray] = _family(component.source).realistic(
        component, shapes, step, rng
    )
    return drawn
