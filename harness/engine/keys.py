"""The keys of the store: everything that decides the contents of an entry.

A key describes contents, never paths or dates. It has digests of weights and
configuration, a digest of the harness's code of that stage, and the versions of the
tools.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import (
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
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
from harness.core.environment import environment, installed
from harness.core.foreign_files import weight_files
from harness.core.pipeline import T5_TOKENS, Pipeline
from harness.core.rounding import Trials
from harness.core.runtime import Runtime, formats, onnx_runtime, runtime, runtimes
from harness.core.settings import RUNS
from harness.engine.deployed import Deployed, Reading
from harness.engine.excerpt import Redraw, Spot
from harness.engine.own_code import own_code
from harness.recipes import RECIPES, weight_folders
from harness.recipes.checkpoint import read_index
from harness.recipes.lora import files_of

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

_EXPORT_TOOLS = ("torch", "onnx", "onnxscript", "onnx-ir", "diffusers", "transformers")
_DRAWING_TOOLS = (
    *("torch", "diffusers", "transformers", "numpy"),
    *("tokenizers", "sentencepiece"),
)
_EVALUATOR = ("onnx", "numpy")
_OPENCV = ("opencv-python-headless", "opencv-python")

_OF_FOLDER = re.compile(r"\.dist-info/|^(\.\./)+(bin|Scripts)/|^__editable__")
"""Files of a package that differ between two environments: its scripts begin with the
path of their Python, and an editable package has the path of its source."""

REPORTS = re.compile(Path(RUNS).parts[0] + r"|\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d.*")
"""Folders of runs. A suite may lie in its checkpoint, and a run then writes there."""

# Parts of the harness's own code, for `code_digest`. A key names folders and not
# modules, so that a new module cannot be forgotten. Most of `core` and `suite` is left
# out, because a key has the values that they decide; the files named here decide more.
_RULES = tuple(
    f"core/{name}.py"
    for name in ("contract", "foreign_files", "onnx_header", "private", "probes")
)
_SESSIONS = ("runtimes/renamed.py", "runtimes/session.py")
_DRAWN = ("recipes", "measure/named_arrays.py")
_EXPORTED = ("measure", "recipes", "runtimes/graph", "runtimes/pytorch", *_RULES)
_FOREIGN = (*_EXPORTED, "runtimes/foreign", *_SESSIONS)
_CONVERTED = (
    *("runtimes/graph", "runtimes/renamed.py", *_RULES),
    *("measure/name_map.py", "measure/trace.py"),
)
_ANSWERED = (
    *("measure", "runtimes/candidate", "runtimes/graph", "runtimes/target"),
    *(*_RULES, *_SESSIONS),
)
_PICTURES = (
    *("measure", "recipes", "runtimes/diffusion", "runtimes/pytorch"),
    "suite/families.py",
)


def remember() -> None:
    """Read the harness's code and the versions of the tools now.

    A process that imports them afterwards then has the keys of what it imported,
    also if somebody edits a file or installs a package while it runs.
    """
    _code()
    builds((*_EXPORT_TOOLS, *_DRAWING_TOOLS, *_OPENCV))
    for one in runtimes().values():
        _runtime_code(one)
        builds((*one.distributions, *one.tools))


def inputs_key(component: Component, sample: Sample) -> dict[str, object]:
    """Return the key of one sample's arrays, which upstream networks may influence."""
    return {
        "component": component.name,
        "recipe": _recipe(component),
        "checkpoint": checkpoint_digest(
            component.source, ("",), _suffixes(component.recipe)
        ),
        "options": dict(component.options),
        "sample": _drawn(sample),
        "code": code_digest(_DRAWN),
        "tools": builds(_DRAWING_TOOLS),
    }


def onnx_key(
    component: Component, settings: ExportSettings, shapes: Mapping[str, int]
) -> dict[str, object]:
    """Return the key of an exported graph, or of a foreign one."""
    if component.foreign:
        kind, path = component.foreign.files[0]  # values are matched with this one
        return {
            "component": _component(component),
            "taken": _digest_of(path, kind),
            "names": dict(component.foreign.names),
            "export": asdict(settings),
            "code": code_digest(_FOREIGN),
            "tools": builds(_EXPORT_TOOLS),
            **_own_reference(component),
        }
    return {
        "component": _component(component),
        "export": asdict(settings),
        "shapes": dict(shapes),
        "code": code_digest(_EXPORTED),
        "tools": builds(_EXPORT_TOOLS),
    }


def program_key(
    component: Component, settings: ExportSettings, shapes: Sequence[Sequence[int]]
) -> dict[str, object]:
    """Return the key of a network's translation, which serves many runs and files.

    `shapes` are the shapes of the inputs that it is traced with.
    """
    return {
        "component": _component(component),
        "export": asdict(settings),
        "shapes": [list(shape) for shape in shapes],
        "code": code_digest(_EXPORTED),
        "tools": builds(_EXPORT_TOOLS),
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


def self_key(reading: Reading, device: Device, dtype: str) -> dict[str, object]:
    """Return the key of PyTorch's own error in `dtype` on one sample.

    Processors compute bfloat16 and float16 in different ways.
    """
    return {
        "reference": reading.reference.key_digest,
        "dtype": dtype,
        "processor": _processor(device),
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
        "tools": builds(_EXPORT_TOOLS),
        **_own_reference(component),
    }


def _own_reference(component: Component) -> dict[str, object]:
    """Return what else decides the reference of a file that is its own."""
    if component.recipe != GIVEN:
        return {}
    ran = onnx_runtime()
    code = [code_digest(_FOREIGN), _runtime_code(ran)]
    return {"reference": [code, builds(ran.distributions)]}


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
        "processor": _processor(case.device),  # a shared store is of several machines
        "code": [code_digest(_ANSWERED), _runtime_code(declared)],
        "tools": builds(declared.distributions),
    }


def _processor(device: Device) -> list[str]:
    gpus = () if device.device == "cpu" else environment().gpus
    return [environment().cpu, *gpus]


def checked_key(component: Component, onnx: Entry) -> dict[str, object]:
    """Return the key of the differences between a graph and PyTorch's module."""
    return {
        "component": _component(component),
        "onnx": contents(onnx),
        "code": code_digest(_EXPORTED),
        "tools": builds(_EXPORT_TOOLS),
    }


def effects_key(given: Trials, values: Mapping[str, object]) -> dict[str, object]:
    """Return the key of the effects of rounded weights on some values.

    `values` say which they are: the inputs of a component, or the key of a drawing.
    """
    return {
        "component": _component(given.component),
        "artifact": contents(given.artifact),
        "device": given.device.settings,
        "trials": given.trials,
        "only": given.only,
        "values": values,
        "code": [code_digest(_EXPORTED), _runtime_code(runtime(given.backend))],
        "tools": builds(_DRAWING_TOOLS),
    }


def weights_key(component: Component) -> dict[str, object]:
    """Return the key of the count of weights of a network with drawn weights."""
    return {
        "component": _component(component),
        "code": code_digest(("recipes", "runtimes/pytorch")),
        "tools": builds(_EXPORT_TOOLS),
    }


def variant_key(
    onnx: Entry, variant: Variant, native: str | None, calibration: Sequence[Entry] = ()
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
        "converter": variant.converter or (_program(native) if native else "wheel"),
        "code": [code_digest(_CONVERTED), _runtime_code(declared)],
        "tools": builds((*declared.distributions, *declared.tools)),
    }


def _program(name: str) -> str:
    """Return a digest of a native converter, with the libraries that it is built of."""
    path = Path(name).resolve()
    homes = (path.parent, path.parent.parent / "lib")
    files = {one for home in homes for one in home.rglob("libMNN*") if one.is_file()}
    return digest_value({one.name: digest_file(one) for one in (path, *files)})


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
        "tools": builds(owner.distributions),
    }


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
        "tools": builds(_EVALUATOR),
    }


def redraw_key(excerpt: Entry, how: Redraw) -> dict[str, object]:
    """Return the key of an excerpt with drawn numbers."""
    return {
        "excerpt": contents(excerpt),
        "how": asdict(how),
        "code": code_digest(("engine", "measure", "runtimes/graph")),
        "tools": builds(_EVALUATOR),
    }


def drawing_inputs_key(pipeline: Pipeline) -> dict[str, object]:
    """Return the key of a pipeline's token ids, noise and picture."""
    image, mask, source = pipeline.image, pipeline.mask, pipeline.source
    folders = tuple(
        name
        for name in ("tokenizer", "tokenizer_2", "vae", "unet", "transformer")
        if (source.path / name).is_dir()
    )
    configs = [source.path / role / "config.json" for role in pipeline.encoders]
    return {
        "checkpoint": checkpoint_digest(source, folders),
        "kind": pipeline.kind,
        "encoders": pipeline.encoders,
        "read_by": [digest_file(config) for config in configs if config.is_file()],
        "texts": [*pipeline.texts, pipeline.negative_prompt],
        "steps": pipeline.steps,
        "seed": pipeline.seed,
        "size": [pipeline.height, pipeline.width],
        "image": digest_file(image) if image else "",
        "mask": digest_file(mask) if mask else "",
        "control": asdict(pipeline.control),
        "code": code_digest(_PICTURES),
        "tools": builds((*_DRAWING_TOOLS, *_OPENCV)),
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
        "tools": builds(_DRAWING_TOOLS),
    }


def self_drawing_key(
    pipeline: Pipeline, inputs: Entry, device: Device, dtype: str
) -> dict[str, object]:
    """Return the key of the errors of PyTorch's own pictures in `dtype`."""
    key = drawing_key(pipeline, inputs, device)
    return {**key, "dtype": dtype, "processor": _processor(device)}


def _sampling(pipeline: Pipeline) -> dict[str, object]:
    # A checkpoint without one is drawn with a scheduler that its family has.
    told = (pipeline.source.path / "scheduler").is_dir()
    return {
        "scheduler": checkpoint_digest(pipeline.source, ("scheduler",)) if told else "",
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
            "checkpoint": weights_digest(component),
            "sample": _drawn(sample) | {"label": sample.label, "knobs": sample.knobs},
            # Left out when empty, so that a baseline without options keeps its digests.
            **({"options": dict(component.options)} if component.options else {}),
        }
    )


def drawing_question(pipeline: Pipeline) -> str:
    """Return a digest of a pipeline's task: its inputs and its weights."""
    inputs = drawing_inputs_key(pipeline)
    # The weights of the encoders, below, have their configuration too.
    apart = {"code", "tools", "read_by"}
    inputs = {k: v for k, v in inputs.items() if k not in apart}
    tokens = pipeline.t5_tokens
    return digest_value(
        {
            "inputs": inputs,
            "checkpoints": [weights_digest(one) for one in pipeline.components],
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
    parts: dict[str, object] = {"trees": trees, "seed": source.seed}
    if source.lora is not None:
        parts["lora"] = [*map(digest_file, files_of(source.lora)), source.lora_scale]
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
    top, _, inside = declared.package.partition(".")
    if top == HOME.name:
        return code_digest((inside.replace(".", "/"),))
    return _package_code(declared.home)


@functools.cache
def _package_code(home: Path) -> str:
    return digest_tree(home, (".py",))


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


def _drawn(sample: Sample) -> dict[str, object]:
    """Return the settings that decide a draw; parameters only if there are some."""
    parts = asdict(sample)
    del parts["layers"], parts["label"], parts["added"]
    if not sample.knobs:
        del parts["knobs"]
    return parts


def _component(component: Component) -> dict[str, object]:
    here: dict[str, object] = {
        "recipe": _recipe(component),
        "checkpoint": weights_digest(component),
        "options": dict(component.options),
        "inputs": [asdict(spec) for spec in component.inputs],
        "outputs": [asdict(spec) for spec in component.outputs],
    }
    if component.source.seed is not None:
        # PyTorch draws other bits with another instruction set.
        here["drawn_on"] = environment().arch
    return here


def weights_digest(component: Component) -> str:
    """Return a digest of the folders of a component's weights."""
    recipe, source = component.recipe, component.source
    folders = weight_folders(recipe, source, component.options)
    return checkpoint_digest(source, folders, _suffixes(recipe))


def _suffixes(recipe: str) -> tuple[str, ...]:
    """Return the ends of the names of files that a recipe may read."""
    return _CHECKPOINT_SUFFIXES if recipe in RECIPES else _OWN_SUFFIXES


@functools.cache
def _recipe_code(recipe: str) -> dict[str, object]:
    """Return what decides a recipe; the harness's own recipes share one digest."""
    if recipe in RECIPES:
        return {"code": code_digest(_DRAWN)}
    files, tops = own_code(recipe)
    known = packages_distributions() if tops else {}
    names = sorted({name for top in tops for name in known.get(top, ())})
    code = digest_value([digest_file(path) for path in files])
    return {"code": code, "packages": builds(names)}


def _recipe(component: Component) -> dict[str, object]:
    imported = {"imported": component.code} if component.code else {}
    return {"name": component.recipe, **_recipe_code(component.recipe), **imported}


def imports_key(component: Component) -> dict[str, object]:
    """Return the key of the files that a user's own `build` runs, which are of here.

    `component.code` is a digest of the files that are known so far.
    """
    files, _ = own_code(component.recipe)
    return {
        "component": _component(component),
        "places": [str(path) for path in (*files, component.source.path.absolute())],
        "code": code_digest(("runtimes/pytorch", "engine/own_code.py")),
    }
