"""The keys of the store: everything that decides the contents of an entry.

A key describes contents, never paths or dates. It has digests of weights and
configuration, a digest of the harness's code of that stage, and the versions of the
tools.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.core.case import (
    GIVEN,
    ONNX,
    Case,
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
from harness.core.environment import environment
from harness.core.foreign_files import weight_files
from harness.core.pipeline import T5_TOKENS, Pipeline
from harness.core.runtime import Runtime, formats, onnx_runtime, runtime
from harness.core.settings import RUNS
from harness.engine.deployed import Deployed, Reading
from harness.engine.excerpt import Redraw, Spot
from harness.engine.own_code import own_files
from harness.recipes import RECIPES, weight_folders
from harness.recipes.checkpoint import read_index
from harness.recipes.lora import files_of

HOME = Path(__file__).parents[1].resolve()
"""The folder of the harness's own code."""

_CHECKPOINT_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
_EXPORT_TOOLS = ("torch", "onnx", "onnxscript", "onnx-ir", "diffusers", "transformers")
_DRAWING_TOOLS = ("torch", "diffusers", "transformers", "numpy")
_OPENCV = ("opencv-python-headless", "opencv-python")

# Folders of the harness's own code, for `code_digest`. A key names folders and not
# modules, so that a new module cannot be forgotten. `core` and `suite` are left out,
# because a key has the values that they decide.
_DRAWN = ("recipes",)
_EXPORTED = ("measure", "recipes", "runtimes/graph", "runtimes/pytorch")
_FOREIGN = (*_EXPORTED, "runtimes/foreign")
_CHECKED = ("measure", "runtimes/graph", "runtimes/pytorch")
_ANSWERED = ("measure", "runtimes/candidate", "runtimes/target")
_PICTURES = ("measure", "recipes", "runtimes/diffusion", "runtimes/pytorch")


def inputs_key(component: Component, sample: Sample) -> dict[str, object]:
    """Return the key of one sample's arrays, which upstream networks may influence."""
    return {
        "component": component.name,
        "recipe": _recipe(component),
        "checkpoint": checkpoint_digest(component.source, ("",)),
        "options": dict(component.options),
        "sample": _drawn(sample),
        "code": code_digest(_DRAWN),
        "tools": versions(_DRAWING_TOOLS),
    }


def onnx_key(
    component: Component, settings: ExportSettings, shapes: Mapping[str, int]
) -> dict[str, object]:
    """Return the key of an exported graph, or of a foreign one."""
    if component.foreign:
        return {
            "component": _component(component),
            "taken": _taken(component.foreign),
            "names": dict(component.foreign.names),
            "export": asdict(settings),
            "code": code_digest(_FOREIGN),
            "tools": versions(_EXPORT_TOOLS),
            **_own_reference(component),
        }
    return {
        "component": _component(component),
        "export": asdict(settings),
        "shapes": dict(shapes),
        "code": code_digest(_EXPORTED),
        "tools": versions(_EXPORT_TOOLS),
    }


def program_key(
    component: Component, settings: ExportSettings, shapes: Sequence[Sequence[int]]
) -> dict[str, object]:
    """Return the key of a network's translation; many files may be matched with it.

    `shapes` are the shapes of the inputs that it is traced with.
    """
    return {
        "component": _component(component),
        "export": asdict(settings),
        "shapes": [list(shape) for shape in shapes],
        "code": code_digest(_FOREIGN),
        "tools": versions(_EXPORT_TOOLS),
    }


def reference_key(
    onnx: Mapping[str, object], inputs: Entry, device: Device, *, layers: bool
) -> dict[str, object]:
    """Return the key of a recorded reference run; its program is the exporter's."""
    return {
        "onnx": digest_value(onnx),
        "inputs": contents(inputs),
        "device": device.settings,
        "layers": layers,
        "code": code_digest(_EXPORTED),
    }


def asked_key(
    component: Component, sizes: tuple[tuple[str, int], ...], device: Device
) -> dict[str, object]:
    """Return the key of PyTorch's answers when each input is changed alone."""
    return {
        "component": _component(component),
        "name": component.name,
        "sizes": dict(sizes),
        "device": device.settings,
        "code": code_digest(_EXPORTED),
        "tools": versions(_EXPORT_TOOLS),
        **_own_reference(component),
    }


def _own_reference(component: Component) -> dict[str, object]:
    """Return what else decides the reference of a file that is its own."""
    if component.recipe != GIVEN:
        return {}
    ran = onnx_runtime()
    code = [code_digest(_FOREIGN), _runtime_code(ran)]
    return {"reference": [code, versions(ran.distributions)]}


def contract_key(case: Case, file: Deployed) -> dict[str, object]:
    """Return the key of a deployed file's answers to the questions of its contract.

    All samples are in it, because the first one runs again after the others.
    """
    declared = runtime(case.backend)
    return {
        "file": contents(file.artifact),
        "asked": contents(file.asked) if file.asked else "",
        "inputs": [contents(reading.inputs) for reading in file.readings],
        "device": case.device.settings,
        "processor": environment().cpu,  # a shared store is of several machines
        "code": [code_digest(_ANSWERED), _runtime_code(declared)],
        "tools": versions(declared.distributions),
    }


def checked_key(component: Component, onnx: Entry) -> dict[str, object]:
    """Return the key of the differences between a graph and PyTorch's module."""
    return {
        "component": _component(component),
        "onnx": contents(onnx),
        "code": code_digest(_CHECKED),
        "tools": versions(_EXPORT_TOOLS),
    }


def weights_key(component: Component) -> dict[str, object]:
    """Return the key of the count of weights of a network with drawn weights."""
    return {
        "component": _component(component),
        "code": code_digest(("recipes", "runtimes/pytorch")),
    }


def variant_key(
    onnx: Entry,
    variant: Variant,
    native: str | None,
    calibration: Sequence[Entry] = (),
) -> dict[str, object]:
    """Return the key of a deployed file, including its calibration inputs."""
    declared = runtime(variant.backend)
    files = {
        flag: f"{flag.partition('=')[0]}={digest_file(path)}"
        for flag, path in variant.files
    }
    return {
        "onnx": contents(onnx),
        "kind": variant.kind,
        "calibration": [contents(entry) for entry in calibration],
        # The contents of a file decide, and not its name.
        "flags": [files.get(flag, flag) for flag in variant.flags],
        "converter": variant.converter
        or (digest_file(Path(native)) if native else "wheel"),
        "code": [code_digest(("runtimes/graph",)), _runtime_code(declared)],
        "tools": versions((*declared.distributions, *declared.tools)),
    }


def converted_key(component: Component, kind: str) -> dict[str, object]:
    """Return the key of a component's foreign file in a runtime's own format."""
    taken = component.foreign or ForeignModel()
    owner = formats()[kind]
    return {
        "file": _digest_of(taken.of(kind), kind),
        "names": dict(taken.names),
        "inputs": [asdict(spec) for spec in component.inputs],
        "outputs": [asdict(spec) for spec in component.outputs],
        "code": [code_digest(_FOREIGN), _runtime_code(owner)],
        "tools": versions(owner.distributions),
    }


def _taken(taken: ForeignModel) -> str:
    """Return a digest of the file that values are matched with."""
    kind, path = taken.files[0]
    return _digest_of(path, kind)


def _digest_of(path: Path | None, kind: str) -> str:
    """Return one digest of a foreign file and of its weights beside it.

    Each process reads them once, unless the file changes.
    """
    if path is None:
        return ""
    names = (path.name, *weight_files(path, kind))
    changed = tuple((path.parent / name).stat().st_mtime_ns for name in names)
    return _digests(path.parent, names, changed)


@functools.cache
def _digests(folder: Path, names: tuple[str, ...], _changed: tuple[int, ...]) -> str:
    return digest_value({name: digest_file(folder / name) for name in names})


def excerpt_key(graph: Entry, reading: Reading, spot: Spot) -> dict[str, object]:
    """Return the key of the excerpt around one value of a graph."""
    return {
        "onnx": contents(graph),
        "inputs": contents(reading.inputs),
        "reference": contents(reading.reference),
        "spot": asdict(spot),
        "code": code_digest(("engine", "measure", "runtimes/graph")),
    }


def redraw_key(excerpt: Entry, how: Redraw) -> dict[str, object]:
    """Return the key of an excerpt with drawn numbers."""
    return {
        "excerpt": contents(excerpt),
        "how": asdict(how),
        "code": code_digest(("engine", "measure", "runtimes/graph")),
    }


def drawing_inputs_key(pipeline: Pipeline) -> dict[str, object]:
    """Return the key of a pipeline's token ids, noise and picture."""
    image, mask, source = pipeline.image, pipeline.mask, pipeline.source
    folders = tuple(
        name
        for name in ("tokenizer", "tokenizer_2", "vae", "unet", "transformer")
        if (source.path / name).is_dir()
    )
    return {
        "checkpoint": checkpoint_digest(source, folders),
        "kind": pipeline.kind,
        "encoders": pipeline.encoders,
        "texts": [*pipeline.texts, pipeline.negative_prompt],
        "steps": pipeline.steps,
        "seed": pipeline.seed,
        "size": [pipeline.height, pipeline.width],
        "image": digest_file(image) if image else "",
        "mask": digest_file(mask) if mask else "",
        "control": asdict(pipeline.control),
        "code": code_digest(_PICTURES),
        "tools": versions((*_DRAWING_TOOLS, *_OPENCV)),
    }


def drawing_key(pipeline: Pipeline, inputs: Entry, device: Device) -> dict[str, object]:
    """Return the key of PyTorch's drawing of a pipeline."""
    return {
        "inputs": contents(inputs),
        "components": [_component(component) for component in pipeline.components],
        "index": read_index(pipeline.source),
        # The inputs hold the ids of each text once, and not which picture has them.
        "texts": [*pipeline.texts, pipeline.negative_prompt],
        **_sampling(pipeline),
        "control": asdict(pipeline.control),
        "t5_tokens": pipeline.t5_tokens,
        "vae_tiling": pipeline.vae_tiling,
        "device": device.settings,
        "code": code_digest(_PICTURES),
        "tools": versions(_DRAWING_TOOLS),
    }


def _sampling(pipeline: Pipeline) -> dict[str, object]:
    return {
        "scheduler": checkpoint_digest(pipeline.source, ("scheduler",)),
        "sampling": asdict(pipeline.sampling),
        "guidance_scale": pipeline.guidance_scale,
        "eta": pipeline.eta,
        "strength": pipeline.strength,
    }


def question(component: Component, sample: Sample) -> str:
    """Return a digest of the task of every runtime: weights and one sample.

    Tools and the harness's own code are left out, because they change the result and
    not the task.
    """
    return digest_value(
        {
            "recipe": component.recipe,
            "checkpoint": _weights(component),
            "sample": {k: v for k, v in asdict(sample).items() if k != "layers"},
            # Left out when empty, so that a baseline without options keeps its digests.
            **({"options": dict(component.options)} if component.options else {}),
        }
    )


def drawing_question(pipeline: Pipeline) -> str:
    """Return a digest of a pipeline's task: its inputs and its weights."""
    inputs = drawing_inputs_key(pipeline)
    inputs = {k: v for k, v in inputs.items() if k not in {"code", "tools"}}
    tokens = pipeline.t5_tokens
    return digest_value(
        {
            "inputs": inputs,
            "checkpoints": [_weights(one) for one in pipeline.components],
            **_sampling(pipeline),
            # Left out where they are the default, for the same reason.
            **({"vae_tiling": True} if pipeline.vae_tiling else {}),
            **({"t5_tokens": tokens} if tokens != T5_TOKENS else {}),
        }
    )


def contents(entry: Entry) -> str:
    """Return one digest of an entry's files."""
    return digest_value({name: file.digest for name, file in entry.files.items()})


@functools.cache
def checkpoint_digest(source: Source, folders: Sequence[str]) -> str:
    """Return a digest of a checkpoint's folders; each process reads them once."""
    if source.path.is_file():
        return _digest_of(source.path, ONNX)
    # A suite may lie in its checkpoint's folder, and its runs write .json files there.
    reports = source.path / Path(RUNS).parent
    trees = [
        digest_tree(source.path / folder, _CHECKPOINT_SUFFIXES, without=reports)
        for folder in folders
    ]
    parts: dict[str, object] = {"trees": trees, "seed": source.seed}
    if source.lora is not None:
        parts["lora"] = [*map(digest_file, files_of(source.lora)), source.lora_scale]
    return digest_value(parts)


@functools.cache
def code_digest(folders: tuple[str, ...]) -> str:
    """Return a digest of the harness's own code in some of its folders.

    Subfolders count too. Each process reads the code once.
    """
    return digest_value([digest_tree(HOME / folder, (".py",)) for folder in folders])


def _runtime_code(declared: Runtime) -> str:
    """Return a digest of a runtime's folder, which may be in another package."""
    top, _, inside = declared.package.partition(".")
    if top == HOME.name:
        return code_digest((inside.replace(".", "/"),))
    return digest_tree(declared.home, (".py",))


@functools.cache
def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _drawn(sample: Sample) -> dict[str, object]:
    """Return the settings that decide a draw; parameters only if there are some."""
    parts = asdict(sample)
    del parts["layers"], parts["label"]
    if not sample.knobs:
        del parts["knobs"]
    return parts


def _component(component: Component) -> dict[str, object]:
    return {
        "recipe": _recipe(component),
        "checkpoint": _weights(component),
        "options": dict(component.options),
        "inputs": [asdict(spec) for spec in component.inputs],
        "outputs": [asdict(spec) for spec in component.outputs],
    }


def _weights(component: Component) -> str:
    """Return a digest of the folders of a component's weights."""
    recipe, source = component.recipe, component.source
    folders = weight_folders(recipe, source, component.options)
    return checkpoint_digest(source, folders)


@functools.cache
def _recipe_code(recipe: str) -> str:
    """Return a digest of a recipe's code; the harness's own recipes share one."""
    if recipe in RECIPES:
        return code_digest(_DRAWN)
    return digest_value([digest_file(path) for path in own_files(recipe)])


def _recipe(component: Component) -> dict[str, str]:
    return {"name": component.recipe, "code": _recipe_code(component.recipe)}
