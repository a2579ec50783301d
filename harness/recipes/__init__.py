"""Recipes: each makes a component from a checkpoint, or from a folder of one.

A recipe is a module with three functions:

``signature(source, options) -> (inputs, outputs)``
    Returns two tuples of `TensorSpec`. It reads only the configuration files. Neither
    it nor the top of the module imports a framework, because each command imports the
    module.
``build(component, attention="") -> torch.nn.Module``
    Returns the unmodified network behind a tensor-only ``forward``, in float32 and eval
    mode.
``realistic(component, shapes, step, rng) -> dict[str, ndarray]``
    Draws each input by its name, in the dtype and shape of the signature, as the
    pipeline would make it. `shapes` is a size for each symbol, and `step` counts
    through timesteps.

It may also have some of these:

``use(outputs) -> dict[str, ndarray]``
    Returns what people read from the outputs, such as cosines and a ranking. These
    values are judged like outputs. Values that are true or false must be the same.
``recorded(component, shapes, index) -> dict[str, ndarray] or None``
    Returns a recorded call, which the suite's first seed gives in the place of a
    realistic draw.
``multiples(source, options) -> {symbol: number}``
    Returns the number that an open size must be a multiple of. Without this function,
    the number follows from the given sizes.
``unfit(source, sizes) -> (symbol, why)``
    Returns the size that the network does not take, and why; both are empty if it takes
    all.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.case import LIVE, Component, ExportSettings, Source
from harness.core.errors import ParityError, SuiteError
from harness.recipes.checkpoint import read_index, t5_folder
from harness.recipes.text.folder import DEPLOYED, is_encoder, tasks_of
from harness.recipes.types import Drawn, Options

if TYPE_CHECKING:
    import numpy as np

RECIPES = {
    "text_encoder": "harness.recipes.diffusion.clip_text:FIRST",
    "text_encoder_2": "harness.recipes.diffusion.clip_text:SECOND",
    "t5_encoder": "harness.recipes.diffusion.t5_text",
    "vae_encoder": "harness.recipes.diffusion.vae_encoder",
    "vae_decoder": "harness.recipes.diffusion.vae_decoder",
    "unet": "harness.recipes.diffusion.unet",
    "controlnet": "harness.recipes.diffusion.controlnet",
    "controlled_unet": "harness.recipes.diffusion.controlled_unet",
    "transformer": "harness.recipes.diffusion.transformer",
    "given": "harness.recipes.onnx_file",
    "captured": "harness.recipes.captured",
    "default": "harness.recipes.text.tasks:DEFAULT",
    "pooling": "harness.recipes.text.pooling",
    "text-generation": "harness.recipes.text.decoder:GENERATION",
    "text-generation-with-past": "harness.recipes.text.decoder",
    "question-answering": "harness.recipes.text.tasks:QUESTION_ANSWERING",
    "text-classification": "harness.recipes.text.tasks:CLASSIFICATION",
    "zero-shot-classification": "harness.recipes.text.tasks:CLASSIFICATION",
}
"""The module of each recipe, and the object in it that has the functions, if that is
not the module itself. A dotted name in a suite is the name of a module. Small networks
come first, because a run tests components in this order."""

GENERATES = ("text-generation", "text-generation-with-past")
"""Recipes of a text model that a suite names by itself: `discover` lists neither."""

_FRAMEWORKS = ("diffusers", "torch", "transformers")
"""Packages whose versions every key has."""

_VERBS = ("signature", "build", "realistic")

_NEEDS = {
    "text_encoder": ("text_encoder",),
    "text_encoder_2": ("text_encoder_2",),
    "vae_encoder": ("vae",),
    "vae_decoder": ("vae",),
    "unet": ("unet",),
    "controlnet": ("controlnet",),
    "controlled_unet": ("unet", "controlnet"),
    "transformer": ("transformer",),
}
"""Folders that a checkpoint must have for a recipe."""


def weight_folders(
    recipe: str, source: Source, options: Iterable[tuple[str, str | int | bool]] = ()
) -> tuple[str, ...]:
    """Return the checkpoint's folders that weights are loaded from.

    For a user's own recipe, these are all folders. The option ``folder`` replaces the
    recipe's first folder. A T5 is in one of several folders.
    """
    if recipe == "t5_encoder":
        return (t5_folder(source),)
    first, *others = _NEEDS.get(recipe, ("",))
    return (str(dict(options).get("folder", first)), *others)


def recipe_module(name: str) -> Any:
    """Import the recipe called `name`, a module or an object with its functions.

    Raises:
        SuiteError: There is no such recipe, or it is not complete.

    """
    path = RECIPES.get(name, name).partition(":")[0]
    try:
        recipe = _imported(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{path}.".startswith(f"{missing}."):
            msg = (
                f"There is no recipe {name!r}; there are {', '.join(RECIPES)}. "
                "A recipe of your own is named by its importable module, as in "
                "'my_package.my_net', or 'my_net' for my_net.py beside parity.toml."
            )
        else:
            msg = f"Recipe {name!r} needs {missing!r}, which is not installed."
        raise SuiteError(msg) from error
    except Exception as error:  # a user's own code may raise anything
        msg = f"Recipe {name!r} cannot be imported: {_said(error)}."
        raise SuiteError(msg) from error
    lacking = [verb for verb in _VERBS if not callable(getattr(recipe, verb, None))]
    if lacking:
        msg = f"Recipe {name!r} has no function {lacking[0]!r}; one needs {_VERBS}."
        raise SuiteError(msg)
    return recipe


def _imported(name: str) -> Any:
    path, _, attribute = RECIPES.get(name, name).partition(":")
    module = importlib.import_module(path)
    return getattr(module, attribute) if attribute else module


def module_part(name: str) -> str:
    """Return the module of ``package.module:name``; empty for what was kept live."""
    return "" if name.startswith(LIVE) else name.partition(":")[0]


def own_modules(component: Component) -> tuple[str, ...] | None:
    """Return the user's own modules that build a component; None if none does.

    A live module names none: only building it shows which code it runs.
    """
    if component.recipe not in RECIPES:
        return (component.recipe,)
    module = module_part(component.source.module)
    if not component.source.module or module.partition(".")[0] in _FRAMEWORKS:
        return None
    return (module,) if module else ()


def uses(component: Component, outputs: Mapping[str, np.ndarray]) -> Drawn:
    """Return the values that people read from outputs; empty without `use`."""
    read = getattr(_imported(component.recipe), "use", None)
    found: Drawn = read(outputs) if callable(read) else {}
    return found


def deployed_as(source: Source) -> ExportSettings:
    """Return the default export settings for a checkpoint."""
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
            "Give the folder of a whole pipeline that save_pretrained() wrote; one of "
            "a text model of transformers has a config.json with a model_type. A "
            "single network of diffusers goes into the folder of its role, such as "
            "vae/, beside a model_index.json that names it. Any other "
            "PyTorch module takes a recipe of your own, which is a Python module that "
            'parity.toml names under [component.NAME] as recipe = "MODULE" '
            "(docs/architecture.md, A recipe of one's own)."
        )
        raise SuiteError(msg)
    read_index(source)
    t5 = t5_folder(source)
    found = tuple(
        name
        for name, folders in _NEEDS.items()
        if all((source.path / folder / "config.json").is_file() for folder in folders)
        and folders != (t5,)  # the folder of CLIP's recipe is missing
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
    name: str, recipe: str, source: Source, options: Options | None = None
) -> Component:
    """Return the component `name`, made from a recipe and a configuration.

    Raises:
        SuiteError: The recipe is unknown, or the checkpoint lacks what it needs.

    """
    options = dict(options or {})
    try:
        inputs, outputs = recipe_module(recipe).signature(source, options)
    except ParityError:
        raise
    except Exception as error:
        if recipe not in RECIPES:  # a user's own code may raise anything
            msg = f"{name}: signature() of recipe {recipe!r} failed: {_said(error)}."
            raise SuiteError(msg) from error
        if isinstance(error, KeyError):
            what = f"has no {error.args[0]!r}, which recipe {recipe!r} reads"
        else:
            what = f"does not fit recipe {recipe!r} ({type(error).__name__}: {error})"
        msg = (
            f"{name}: a config.json of {source.path} {what}; save it again with "
            "save_pretrained()."
        )
        raise SuiteError(msg) from error
    if not all(isinstance(specs, tuple) for specs in (inputs, outputs)):
        msg = (
            f"{name}: signature() of recipe {recipe!r} must return two tuples of "
            "TensorSpec, as in `return (latents,), (picture,)`."
        )
        raise SuiteError(msg)
    return Component(
        name=name,
        recipe=recipe,
        source=source,
        inputs=inputs,
        outputs=outputs,
        options=tuple(sorted(options.items())),
    )


def _said(error: Exception) -> str:
    """Return an exception's first line, and the line of code that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file, line = place.filename, place.lineno
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first} ({Path(file).name}:{line})"
