"""The design, held against the code: who imports whom, and what that costs."""

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "harness"
MAX_LINES = 600

# Lowest first; a module imports strictly lower layers. `folder.*` is a folder, whose
# files may import each other; a name of its own goes before it.
LAYERS = (
    # words
    ("harness", "outcome", "environment", "ladder", "probes", "export_files", "cuts"),
    ("closes",),
    ("errors",),
    # nouns, files, child processes
    ("spec", "toml_file", "digest", "job", "comparison", "files.*"),
    ("tolerance", "names", "taken.files", "contract", "spans"),
    ("feeds", "room"),
    ("entry", "isolate", "gaps", "align", "matrix", "components.*", "worst_inputs"),
    ("groups", "deployed", "hub", "backends", "e2e.plan", "e2e.attribution"),
    ("scope", "explaining.excerpt", "calls", "e2e.mixtures", "e2e.sampling_tables"),
    ("e2e.app",),
    ("policy", "export_table", "taken.tables", "e2e.inpaint_tables"),
    ("source_table",),
    ("varied", "forecast"),
    ("sizes",),
    ("store", "trace", "keys", "inputs", "e2e.tables"),
    ("suite", "ranges", "e2e.needs"),
    # measure
    ("activations", "kernel", "residuals", "promises", "operation", "weight_kinds"),
    ("compare", "seen", "weighted_forms", "attention_forms"),
    ("forms",),
    ("patterns",),
    ("signatures",),
    ("warm",),
    # judge
    ("judge",),
    # report
    ("report.*",),
    # frameworks
    ("graph", "segments", "attributes", "program", "refusal", "weights", "floors"),
    ("submodules", "origin", "operands", "graph_constants"),
    ("graph_check",),
    ("reference", "asking"),
    ("export", "convert", "halve", "backends.*"),
    ("transform", "taken.*"),
    # stages, and their order
    ("stages",),
    ("torch_stage", "deploy_stage", "explaining.excerpt_stage", "candidate"),
    ("isolated",),
    ("e2e.*", "workshop"),
    ("makers",),
    ("pipeline", "doctor.*", "init.*"),
    ("stale",),
    ("progress", "runner", "pair"),
    ("release.*",),
    ("conclude",),
    ("rejudge",),
    ("explaining.*", "tuning.*", "benching.*"),
    ("parity_session", "families"),
    # people
    ("plugin", "commands.words"),
    ("commands.*",),
    ("cli",),
    ("__main__",),
)

# A request names, inside a function, the stage that answers it in a child process.
ANSWERED_BY = {
    "stages": (
        *("torch_stage", "deploy_stage", "candidate", "isolated"),
        *("taken.mnn", "taken.alone", "explaining.excerpt_stage"),
        *("e2e.stage", "tuning.stage", "benching.stage"),
        "benching.drawing",
    )
}

# Who may import what is heavy, at the top of the file or in a function.
HOMES = {
    "numpy": (
        *("trace", "inputs", "varied", "align", "feeds", "ranges"),
        *("backends", "backends.*", "components", "components.*", "taken.alone"),
        *("kernel", "compare", "residuals", "activations", "signatures", "attributes"),
        *("promises", "weight_kinds", "graph_constants", "graph_check"),
        *("operation", "operands", "seen", "patterns"),
        *("forms", "weighted_forms", "attention_forms"),
        *("reference", "floors", "calls", "graph", "segments", "halve", "warm"),
        *("candidate", "isolated", "e2e.*", "explaining.*", "tuning.*", "benching.*"),
        "doctor.child",
    ),
    "hypothesis": ("tuning.strategies", "tuning.search"),
    "numba": ("kernel", "doctor.child"),
    "torch": (
        *("components.*", "program", "reference", "floors", "export", "taken.lineup"),
        *("taken.translated", "taken.pairing"),
        *("refusal", "submodules", "weights", "graph_check", "torch_stage", "e2e.*"),
        *("doctor.child", "benching.pytorch"),
    ),
    "onnx": (
        *("export", "graph", "convert", "transform", "halve", "backends.onnxruntime"),
        "taken.pairing",
        *("backends.ort_profile", "backends.ort_refusal", "segments", "attributes"),
        *("origin", "operands", "graph_constants", "graph_check", "doctor.child"),
        *("taken.lineup", "taken.onnx", "taken.mnn", "taken.probes"),
        "explaining.excerpt_stage",
    ),
    "onnx_ir": ("weights", "export", "graph_constants", "taken.lineup"),
    "onnxscript": (),  # torch.onnx imports it, and nobody else need
    "onnxruntime": (
        *("transform", "halve", "backends.onnxruntime", "backends.ort_profile"),
        "doctor.child",
    ),
    "MNN": ("convert", "backends.mnn", "doctor.child", "taken.mnn"),
    "cv2": ("e2e.hints", "e2e.pictures"),
    "skimage": ("e2e.pictures",),
    "jinja2": ("report.html.*",),
    "plotly": ("report.html.*",),
    "flip_evaluator": ("e2e.pictures",),
    "_tools": ("doctor.child",),
    "diffusers": ("components.*", "e2e.*"),
    "transformers": ("components.*",),
}

# Here a framework is imported only inside the function that needs it: reading a suite,
# asking for help or starting pytest must not load one.
LATE = ("components.*", "doctor.*", "convert", "plugin", "commands.*")


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "harness"


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def entry_of(module):
    """The name under which LAYERS lists a module, or None."""
    listed = [entry for layer in LAYERS for entry in layer]
    if module in listed:
        return module
    folder = f"{module.partition('.')[0]}.*"
    return folder if folder in listed else None


def rank(module):
    entry = entry_of(module)
    return next(number for number, layer in enumerate(LAYERS) if entry in layer)


def imports_of(tree):
    """Yield the full dotted name of all that a tree imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def roots_of(tree):
    """The packages that a tree imports from."""
    return {name.partition(".")[0] for name in imports_of(tree)}


def own_imports(tree):
    """Yield the modules of this package that a tree imports."""
    for name in imports_of(tree):
        top, *parts = name.split(".")
        if top != "harness":
            continue
        while parts and ".".join(parts) not in MODULES:
            parts.pop()
        yield ".".join(parts) or "harness"


def upward(module, tree):
    """Name each import of a tree that does not go down a layer."""
    at_import = set(own_imports(top_of(tree)))
    answers = set(ANSWERED_BY.get(module, ())) - at_import
    return [
        f"{module} imports {name}"
        for name in own_imports(tree)
        if rank(name) >= rank(module)
        and name not in answers
        and not (entry_of(name) == entry_of(module) and entry_of(name).endswith(".*"))
    ]


def homeless(module, tree, homes):
    """Name each heavy import of a tree that has no place in that module."""
    return [
        f"{module} imports {root}"
        for root in sorted(roots_of(tree) & set(HOMES))
        if not any(fnmatch(module, home) for home in homes.get(root, ()))
    ]


def top_of(tree):
    """What runs when a module is imported: no function bodies, no type-only blocks."""
    tops = [
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    return ast.Module(body=tops, type_ignores=[])


def read(module):
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_every_module_has_its_layer():
    unknown = [module for module in MODULES if entry_of(module) is None]

    assert unknown == [], f"Add {unknown} to LAYERS in {Path(__file__).name}."


def test_each_module_stands_in_the_table_of_files():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| Layer | Modules |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([\w.]+/?)`", table))
    modules = set(MODULES) - {"harness", "__main__"}

    # A folder stands for its files.
    untold = {m for m in modules if told.isdisjoint({m, f"{m.partition('.')[0]}/"})}
    unknown = {name for name in told if name.removesuffix("/") not in modules}
    assert (untold, unknown) == (set(), set())


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_lower_layers(module):
    if entry_of(module) is None:
        pytest.fail(f"{module} has no layer.")

    assert upward(module, read(module)) == []


@pytest.mark.parametrize("module", MODULES)
def test_a_framework_is_imported_only_where_its_name_says(module):
    assert homeless(module, read(module), HOMES) == []


@pytest.mark.parametrize(
    ("root", "home"), [(root, home) for root, homes in HOMES.items() for home in homes]
)
def test_every_home_of_a_framework_is_lived_in(root, home):
    inside = [name for name in MODULES if fnmatch(name, home)]

    assert any(root in roots_of(read(name)) for name in inside)


@pytest.mark.parametrize(
    "module",
    [name for name in MODULES if any(fnmatch(name, pattern) for pattern in LATE)],
)
def test_a_light_module_imports_frameworks_late(module):
    assert homeless(module, top_of(read(module)), {}) == []


@pytest.mark.parametrize("module", MODULES)
def test_nothing_imports_the_commands_of_the_mnn_wheel(module):
    banned = [name for name in imports_of(read(module)) if name.startswith("MNN.tools")]

    assert banned == [], "MNN.tools installs packages and posts to a log service."


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_read_in_one_sitting(module):
    lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())

    assert lines <= MAX_LINES


def test_the_plugin_is_cheap_to_import():
    code = "import sys, harness.plugin; print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    # Every pytest run of the environment that it is installed in pays for it.
    assert sorted(set(HOMES) & set(done.stdout.split())) == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        pytest.param(
            "judge",
            "from harness import pipeline",
            ["judge imports pipeline"],
            id="module-from-package",
        ),
        pytest.param(
            "outcome",
            "def f():\n    from harness.errors import ParityError",
            ["outcome imports errors"],
            id="inside-a-function",
        ),
        pytest.param(
            "spec",
            "import harness.tolerance",
            ["spec imports tolerance"],
            id="same-layer",
        ),
        pytest.param("errors", "from harness.outcome import Outcome", [], id="down"),
        pytest.param(
            "doctor.checks", "from harness.doctor import child", [], id="same-folder"
        ),
        pytest.param("store", "from harness import __version__", [], id="version"),
    ],
)
def test_an_import_upward_is_seen(module, source, found):
    assert upward(module, ast.parse(source)) == found


def test_a_framework_in_the_wrong_place_is_seen():
    tree = ast.parse("def f():\n    from torch import nn\n    import os")

    assert homeless("judge", tree, HOMES) == ["judge imports torch"]
    assert homeless("export", tree, HOMES) == []
    assert homeless("export", top_of(tree), {}) == []
    assert homeless("cli", ast.parse("import torch"), {}) == ["cli imports torch"]
