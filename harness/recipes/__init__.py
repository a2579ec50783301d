"""Recipes: how a checkpoint, or a folder of one, becomes a component.

A recipe is a module with three functions, and perhaps a fourth:

``signature(source, options) -> (inputs, outputs)``
    From the configuration files alone; imports no framework.
``build(component, attention="") -> torch.nn.Module``
    The unmodified network behind a tensor-only ``forward``, float32, in eval mode.
``realistic(component, shapes, step, rng) -> dict[str, ndarray]``
    Inputs such as the pipeline would make; `step` counts through timesteps.

and maybe one of these:

``use(outputs) -> dict[str, ndarray]``
    What people read from the outputs, such as cosines and a ranking; judged beside
    them, and what is read as true or false must be read the same.
``multiples(source, options) -> {symbol: number}``
    What an open size must be a multiple of; without it, as all sizes that are given.
``unfit(source, sizes) -> (symbol, why)``
    Which of a set of sizes the network does not take, and why; both empty for none.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from harness.core.case import Component, ExportSettings, Source
from harness.core.errors import ParityError, SuiteError
from harness.recipes.checkpoint import read_index
from harness.recipes.diffusion.t5_text import t5_folder
from harness.recipes.text.encoder import DEPLOYED, is_encoder, tasks_of

if TYPE_CHECKING:
    import numpy as np

RECIPES = {
    "text_encoder": "harness.recipes.diffusion.clip_text",
    "text_encoder_2": "harness.recipes.diffusion.clip_text_2",
    "t5_encoder": "harness.recipes.diffusion.t5_text",
    "unet": "harness.recipes.diffusion.unet",
    "controlnet": "harness.recipes.diffusion.controlnet",
    "controlled_unet": "harness.recipes.diffusion.controlled_unet",
    "transformer": "harness.recipes.diffusion.transformer",
    "vae_encoder": "harness.recipes.diffusion.vae_encoder",
    "vae_decoder": "harness.recipes.diffusion.vae_decoder",
    "given": "harness.recipes.onnx_file",
    "default": "harness.recipes.text.hidden_states",
    "pooling": "harness.recipes.text.pooling",
    "question-answering": "harness.recipes.text.question_answering",
    "text-classification": "harness.recipes.text.classification",
    "zero-shot-classification": "harness.recipes.text.classification",
}
"""Recipe name to module; a dotted name in a suite stands for itself."""

_VERBS = ("signature", "build", "realistic")

_NEEDS = {
    "text_encoder": ("text_encoder",),
    "text_encoder_2": ("text_encoder_2",),
    "unet": ("unet",),
    "controlnet": ("controlnet",),
    "controlled_unet": ("unet", "controlnet"),
    "transformer": ("transformer",),
    "vae_encoder": ("vae",),
    "vae_decoder": ("vae",),
}
"""Folders a checkpoint must have before a recipe is offered."""


def weight_folders(
    recipe: str, source: Source, options: Iterable[tuple[str, str | int | bool]] = ()
) -> tuple[str, ...]:
    """Return the checkpoint's folders that weights are loaded from.

    All of them, for a recipe that is not the harness's own. The option ``folder`` names
    another than the recipe's first; a T5 is in one of several.
    """
    if recipe == "t5_encoder":
        return (t5_folder(source),)
    first, *others = _NEEDS.get(recipe, ("",))
    return (str(dict(options).get("folder", first)), *others)


def recipe_module(name: str) -> ModuleType:
    """Import the recipe called `name`.

    Raises:
        SuiteError: There is no such recipe, or it is not complete.

    """
    path = RECIPES.get(name, name)
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{path}.".startswith(f"{missing}."):
            msg = (
                f"There is no recipe {name!r}; there are {', '.join(RECIPES)}. "
                "A recipe of your own is named by its importable module, as in "
                "'my_package.my_net'."
            )
        else:
            msg = f"Recipe {name!r} needs {missing!r}, which is not installed."
        raise SuiteError(msg) from error
    except Exception as error:  # somebody's own code may raise anything
        msg = f"Recipe {name!r} cannot be imported: {_said(error)}."
        raise SuiteError(msg) from error
    lacking = [verb for verb in _VERBS if not callable(getattr(module, verb, None))]
    if lacking:
        msg = f"Recipe {name!r} has no function {lacking[0]!r}; one needs {_VERBS}."
        raise SuiteError(msg)
    return module


def uses(
    component: Component, outputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return what people read from a component's outputs, if its recipe says so."""
    module = importlib.import_module(RECIPES.get(component.recipe, component.recipe))
    read = getattr(module, "use", None)
    found: dict[str, np.ndarray] = read(outputs) if callable(read) else {}
    return found


def deployed_as(source: Source) -> ExportSettings:
    """Return how such a checkpoint is exported where a suite does not say."""
    return DEPLOYED if is_encoder(source) else ExportSettings()


def discover(source: Source) -> tuple[str, ...]:
    """Return the recipes that the checkpoint has folders for.

    Raises:
        SuiteError: The folder is no diffusers checkpoint, or has no known component.

    """
    index = source.path / "model_index.json"
    if not source.path.is_dir():
        msg = f"There is no checkpoint at {source.path}: no such folder."
        raise SuiteError(msg)
    if is_encoder(source):
        return tasks_of(source)
    if not index.is_file():
        msg = (
            f"{source.path} is not a diffusers checkpoint: it has no model_index.json. "
            "Give the folder that save_pretrained() wrote; one of a text model of "
            "transformers has a config.json with a model_type."
        )
        raise SuiteError(msg)
    read_index(source)
    t5 = t5_folder(source)
    found = tuple(
        name
        for name, folders in _NEEDS.items()
        if all((source.path / folder / "config.json").is_file() for folder in folders)
        and folders != (t5,)  # what CLIP's recipe reads is not there
    )
    if t5:
        found = ("t5_encoder", *found)
    if not found:
        folders = sorted({folder for needs in _NEEDS.values() for folder in needs})
        msg = (
            f"{source.path} has none of the folders {', '.join(folders)} with a "
            "config.json, so there is nothing to test."
        )
        raise SuiteError(msg)
    return found


def describe(
    name: str,
    recipe: str,
    source: Source,
    options: Mapping[str, str | int | bool] | None = None,
) -> Component:
    """Make the component `name` from a recipe and a checkpoint's configuration.

    Raises:
        SuiteError: The recipe is unknown, or the checkpoint lacks what it needs.

    """
    options = dict(options or {})
    try:
        inputs, outputs = recipe_module(recipe).signature(source, options)
    except ParityError:
        raise
    except Exception as error:
        if recipe not in RECIPES:  # somebody's own code may raise anything
            msg = f"{name}: signature() of recipe {recipe!r} failed: {_said(error)}."
            raise SuiteError(msg) from error
        if not isinstance(error, KeyError):
            raise
        msg = (
            f"{name}: a config.json of {source.path} has no {error.args[0]!r}, which "
            f"recipe {recipe!r} reads; save it again with save_pretrained()."
        )
        raise SuiteError(msg) from error
    return Component(
        name=name,
        recipe=recipe,
        source=source,
        inputs=inputs,
        outputs=outputs,
        options=tuple(sorted(options.items())),
    )


def _said(error: Exception) -> str:
    """Return an exception's first line, and the line of code that it comes from."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file, line = place.filename, place.lineno
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first} ({Path(file).name}:{line})"
