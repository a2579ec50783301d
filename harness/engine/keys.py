"""The keys of the store: everything that decides the contents of an entry.

A key describes contents, never paths or dates. It has digests of weights and
configuration, a digest of the harness's code of that stage, and the versions of the
tools.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import (
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from harness.core.case import (
    GIVEN,
    ONNX,
    Component,
    Device,
    ExportSettings,
    ForeignModel,
    Sample,
    Source,
    Variant,
)
from harness.core.digest import digest_file, digest_tree, digest_value
from harness.core.entry import Entry
from harness.core.environment import environment, installed
from harness.core.groups import Group
from harness.core.onnx_ports import files_beside
from harness.core.plugins import declared
from harness.core.rounding import Trials
from harness.core.runtime import Runtime, formats, onnx_runtime, runtime, runtimes
from harness.core.settings import RUNS
from harness.engine.deployed import Reading
from harness.engine.own_code import own_code
from harness.recipes import RECIPES, module_part, own_modules, weight_folders
from harness.recipes.adapters import adapter_for

HOME = Path(__file__).parents[1].resolve()
"""The folder of the harness's own code."""

_CHECKPOINT_SUFFIXES = (
    *(".json", ".safetensors", ".txt"),
    *(".model", ".spm", ".tiktoken", ".vocab"),
)
_OWN_SUFFIXES = (
    *(*_CHECKPOINT_SUFFIXES, ".bin", ".ckpt", ".data", ".gguf", ".h5", ".msgpack"),
    *(".npy", ".npz", ".onnx", ".pickle", ".pkl", ".pt", ".pth", ".tar", ".th"),
    *(".yaml", ".yml"),
)
"""What a user's own recipe may read; the harness's own recipes read the others only."""

EXPORT_TOOLS = ("torch", "onnx", "onnxscript", "onnx-ir", "diffusers", "transformers")
DRAWING_TOOLS = (
    *("torch", "diffusers", "transformers", "numpy"),
    *("tokenizers", "sentencepiece"),
)
OPENCV = ("opencv-python-headless", "opencv-python")

_OF_FOLDER = re.compile(r"\.dist-info/|^(\.\./)+(bin|Scripts)/|^__editable__")
"""Files of a package that differ between two environments: its scripts begin with the
path of their Python, and an editable package has the path of its source."""

REPORTS = re.compile(Path(RUNS).parts[0] + r"|\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d.*")
"""Folders of runs. A suite may lie in its checkpoint, and a run then writes there."""


@dataclass(frozen=True, slots=True)
class Native:
    """A native converter: its path, or None for the one of the wheel."""

    path: str | None


# Parts of the harness's own code, for `code_digest`. A key names folders and not
# modules, so that a new module cannot be forgotten. Most of `core` and `suite` is left
# out, because a key has the values that they decide; the files named here decide more.
_RULES = tuple(
    f"core/{name}.py"
    for name in ("contract", "onnx_header", "onnx_ports", "private", "probes")
)
_SESSIONS = tuple(f"runtimes/{name}.py" for name in ("driving", "renamed", "session"))
DRAWN = ("recipes", "measure/named_arrays.py")
EXPORTED = ("measure", "recipes", "runtimes/graph", "runtimes/pytorch", *_RULES)
TAKEN = (*EXPORTED, *_SESSIONS)
CONVERTED = (
    *("runtimes/graph", "runtimes/renamed.py", *_RULES),
    *("measure/name_map.py", "measure/trace.py"),
)
ANSWERED = (
    *("measure", "runtimes/candidate", "runtimes/graph"),
    *(*_RULES, *_SESSIONS),
)


def remember() -> None:
    """Read the harness's code and the versions of the tools now.

    A process that imports them afterwards then has the keys of what it imported,
    also if somebody edits a file or installs a package while it runs.
    """
    _code()
    builds((*EXPORT_TOOLS, *DRAWING_TOOLS, *OPENCV))
    for one in runtimes().values():
        _runtime_code(one)
        builds((*one.distributions, *one.tools))


@functools.singledispatch
def part(argument: object) -> object:
    """Return what a key has of an argument of a stage: values for JSON, no paths.

    Text, numbers, lists and mappings are their own part. Of everything else the part is
    what decides the result of a stage: contents and not places, settings and not names.
    An argument of an unknown type is refused when the key is digested.
    """
    return argument


@part.register(tuple)
@part.register(list)
def _(argument: Sequence[object]) -> object:
    return [part(item) for item in argument]


@part.register
def _(argument: Entry) -> object:
    return contents(argument)


@part.register
def _(argument: ExportSettings) -> object:
    settings = argument.settings
    if argument.patch:
        settings["patch"] = [argument.patch, own_code_of(module_part(argument.patch))]
    return settings


@part.register
def _(argument: Device) -> object:
    return argument.settings


@part.register
def _(argument: Group) -> object:
    """A graph serves every sample of its group, so the samples do not decide it."""
    return dict(argument.shapes)


@part.register
def _(argument: Sample) -> object:
    """Parameters are left out if there are none."""
    settings = asdict(argument)
    del settings["layers"], settings["label"], settings["added"]
    if not argument.knobs:
        del settings["knobs"]
    return settings


@part.register
def _(argument: Runtime) -> object:
    tools = builds((*argument.distributions, *argument.tools))
    return {"code": _runtime_code(argument), "tools": tools}


@part.register
def _(argument: Variant) -> object:
    """Where a flag names a file, the contents decide; the name does not."""
    files = {
        flag: f"{flag.partition('=')[0]}={digest_file(path)}"
        for flag, path in argument.files
    }
    return {
        "kind": argument.kind,
        "flags": [files.get(flag, flag) for flag in argument.flags],
        "converter": argument.converter,
        "runtime": part(runtime(argument.backend)),
    }


@part.register
def _(argument: Native) -> object:
    """A converter is its program and the libraries that it is built of."""
    if not argument.path:
        return "wheel"
    path = Path(argument.path).resolve()
    homes = (path.parent, path.parent.parent / "lib")
    files = {one for home in homes for one in home.rglob("libMNN*") if one.is_file()}
    return {one.name: digest_file(one) for one in (path, *files)}


@part.register
def _(argument: Reading) -> object:
    return {
        "inputs": contents(argument.inputs),
        "reference": contents(argument.reference),
    }


@part.register
def _(argument: Trials) -> object:
    return {
        "component": part(argument.component),
        "artifact": contents(argument.artifact),
        "device": argument.device.settings,
        "trials": argument.trials,
        "only": argument.only,
        "runtime": part(runtime(argument.backend)),
    }


@part.register
def _(argument: Component) -> object:
    """A component is its recipe, weights and tensors; its name decides nothing."""
    settings: dict[str, object] = {
        "recipe": _recipe(argument),
        "checkpoint": weights_digest(argument),
        "options": dict(argument.options),
        "inputs": [asdict(spec) for spec in argument.inputs],
        "outputs": [asdict(spec) for spec in argument.outputs],
    }
    if argument.source.seed is not None:
        # PyTorch draws other bits with another instruction set.
        settings["drawn_on"] = environment().arch
    if argument.source.lora is not None:
        settings["adapters"] = code_of_plugins("adapters")
    if argument.foreign:
        kind, path = argument.foreign.files[0]  # values are matched with this one
        settings["foreign"] = {
            "file": _digest_of(path, kind),
            "names": dict(argument.foreign.names),
            "code": [code_digest(TAKEN), code_of_plugins("files")],
        }
    if argument.recipe == GIVEN:
        # The file is its own reference, and ONNX Runtime runs it.
        ran = onnx_runtime()
        code = [code_digest(TAKEN), code_of_plugins("files"), _runtime_code(ran)]
        settings["reference"] = [code, builds(ran.distributions)]
    return settings


def whole(component: Component) -> dict[str, object]:
    """Return what decides drawn inputs: a recipe may read all of its checkpoint."""
    suffixes = _suffixes(component.recipe)
    return {
        "name": component.name,  # a draw depends on it
        "recipe": _recipe(component),
        "checkpoint": checkpoint_digest(component.source, ("",), suffixes),
        "options": dict(component.options),
    }


def converted(component: Component, kind: str) -> dict[str, object]:
    """Return what decides a foreign file of a component in the store."""
    taken = component.foreign or ForeignModel()
    return {
        "file": _digest_of(taken.of(kind), kind),
        "names": dict(taken.names),
        "inputs": [asdict(spec) for spec in component.inputs],
        "outputs": [asdict(spec) for spec in component.outputs],
    }


def processor(device: Device) -> list[str]:
    """Return the processors that compute: each rounds few bits in its own way."""
    gpus = () if device.device == "cpu" else environment().gpus
    return [environment().cpu, *gpus]


def _digest_of(path: Path | None, kind: str) -> str:
    """Return one digest of a foreign file and of its weights beside it.

    Each process reads them once, unless the file changes.
    """
    if path is None:
        return ""
    own = formats()[kind].own_format if kind != ONNX else None
    beside = (f"{path.name}{own.weights}",) if own else files_beside(path)
    there = (name for name in beside if (path.parent / name).is_file())
    names = (path.name, *there)
    changed = tuple((path.parent / name).stat().st_mtime_ns for name in names)
    return _digests(path.parent, names, changed)


@functools.cache
def _digests(folder: Path, names: tuple[str, ...], _changed: tuple[int, ...]) -> str:
    return digest_value({name: digest_file(folder / name) for name in names})


def question(component: Component, sample: Sample) -> str:
    """Return a digest of the task of every runtime: weights and one sample.

    Tools and the harness's own code are left out, because they change the result and
    not the task.
    """
    drawn = cast("dict[str, object]", part(sample))
    return digest_value(
        {
            "recipe": component.recipe,
            "checkpoint": weights_digest(component),
            "sample": drawn | {"label": sample.label, "knobs": sample.knobs},
            # Left out when empty, so that a baseline without options keeps its digests.
            **({"options": dict(component.options)} if component.options else {}),
        }
    )


def contents(entry: Entry) -> str:
    """Return one digest of an entry's files."""
    return digest_value({name: file.digest for name, file in entry.files.items()})


@functools.cache
def checkpoint_digest(
    source: Source,
    folders: Sequence[str],
    suffixes: Sequence[str] = _CHECKPOINT_SUFFIXES,
) -> str:
    """Return a digest of a checkpoint's folders; each process reads them once."""
    if source.path.is_file():
        return _digest_of(source.path, ONNX)
    trees = [
        digest_tree(
            source.path / folder,
            suffixes,
            is_left_out=lambda name: REPORTS.fullmatch(name) is not None,
        )
        for folder in folders
    ]
    if source.weights is not None:
        trees.append(digest_tree(source.weights, suffixes))
    parts: dict[str, object] = {"trees": trees, "seed": source.seed}
    if source.module:
        parts["module"] = source.module
    if source.lora is not None:
        files = adapter_for(source).files
        parts["lora"] = [*map(digest_file, files), source.lora_scale]
    return digest_value(parts)


@functools.cache
def _code() -> dict[str, str]:
    """Return the digest of each file of the harness's own code, by its name."""
    files = (path for path in HOME.rglob("*.py") if path.is_file())
    return {path.relative_to(HOME).as_posix(): digest_file(path) for path in files}


@functools.cache
def code_digest(parts: tuple[str, ...]) -> str:
    """Return a digest of parts of the harness's own code: files, and whole folders."""
    return digest_value(
        {
            name: digest
            for name, digest in _code().items()
            if any(name == part or name.startswith(f"{part}/") for part in parts)
        }
    )


def _runtime_code(declared: Runtime) -> str:
    """Return a digest of a runtime's folder, which may be in another package."""
    return _code_of(declared.package)


@functools.cache
def _package_code(home: Path) -> str:
    return digest_tree(home, (".py",))


@functools.cache
def code_of_plugins(kind: str) -> dict[str, str]:
    """Return a digest of the code of each function that plug-ins add of a kind.

    The function's package counts: all modules of its folder. A module that cannot be
    found has no digest, and whoever calls the function says so.
    """
    return {name: _code_at(name.partition(":")[0]) for name in declared(kind)}


def _code_at(module: str) -> str:
    """Return a digest of the package of a module, or of a module that has none."""
    return _code_of(module.rpartition(".")[0] or module)


def _code_of(package: str) -> str:
    """Return a digest of a package's folder; empty if it cannot be found."""
    top, _, inside = package.partition(".")
    if top == HOME.name:
        return code_digest((inside.replace(".", "/"),))
    with suppress(ImportError):
        found = find_spec(package)
        if found and found.submodule_search_locations:
            return _package_code(Path(found.submodule_search_locations[0]))
        if found and found.origin:
            return digest_file(Path(found.origin))
    return ""


def builds(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the versions of installed packages, and a digest of what each has.

    Whoever works on a package installs it again and again under one version.
    """
    return {name: [found, _files(name)] for name, found in installed(names).items()}


@functools.cache
def _files(name: str) -> str:
    """Return a digest of a package's list of files, of those that have digests."""
    try:
        listed = distribution(name).read_text("RECORD") or ""
    except PackageNotFoundError:
        listed = ""
    lines = (line for line in listed.splitlines() if "sha256=" in line)
    return digest_value(sorted(line for line in lines if not _OF_FOLDER.search(line)))


def weights_digest(component: Component) -> str:
    """Return a digest of the folders of a component's weights."""
    recipe, source = component.recipe, component.source
    folders = weight_folders(recipe, source, component.options)
    return checkpoint_digest(source, folders, _suffixes(recipe))


def _suffixes(recipe: str) -> tuple[str, ...]:
    """Return the ends of the names of files that a recipe may read."""
    return _CHECKPOINT_SUFFIXES if recipe in RECIPES else _OWN_SUFFIXES


def _recipe_code(recipe: str) -> dict[str, object]:
    """Return what decides a recipe; the harness's own recipes share one digest."""
    return {"code": code_digest(DRAWN)} if recipe in RECIPES else own_code_of(recipe)


@functools.cache
def own_code_of(*modules: str) -> dict[str, object]:
    """Return what decides the user's own modules: their code and its packages."""
    files, tops = own_code(*filter(None, modules))
    known = packages_distributions() if tops else {}
    names = sorted({name for top in tops for name in known.get(top, ())})
    code = digest_value([digest_file(path) for path in files])
    return {"code": code, "packages": builds(names)}


def _recipe(component: Component) -> dict[str, object]:
    imported = {"imported": component.code} if component.code else {}
    own = own_modules(component) or ()
    module = {"module": own_code_of(*own)} if component.source.module else {}
    code = _recipe_code(component.recipe)
    return {"name": component.recipe, **code, **module, **imported}
