"""The code follows the design: which package imports which, and the cost of imports."""

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from graphlib import TopologicalSorter

import pytest

from harness.core.runtime import runtimes
from tests.places import ROOT

PACKAGE = ROOT / "harness"
MAX_LINES = 600

# Lowest first. A module imports from its own package and from those before it.
PACKAGES = (
    *("core", "measure", "judge", "recipes", "suite", "engine", "runtimes", "report"),
    *("commands", "plugins"),
)
# These stand beside the packages, above all of them.
ABOVE = ("plugin", "strategies", "__main__")

# Who may import what is heavy, at the top of the file or in a function.
HOMES = {
    "numpy": (
        *(
            "measure.*",
            "recipes",
            "recipes.*",
            "runtimes.*",
            *("plugins.start.doctor.child", "plugins.pipelines.drawing.*"),
        ),
        *(
            "plugins.explain.*",
            "plugins.patterns.*",
            "plugins.contracts.runs.*",
            "plugins.weights.*",
            "plugins.tune.draws",
            "plugins.bench.*",
        ),
        *("plugins.plan.search", "plugins.foreign.files.onnx_reference"),
        *("plugins.card.*", "plugins.elsewhere.*"),  # a card and a trace have arrays
        "strategies",
    ),
    "hypothesis": ("strategies",),
    "numba": ("measure.kernel",),
    "torch": (
        *(
            "recipes.*",
            "runtimes.pytorch.*",
            "plugins.foreign.files.*",
            "plugins.lora.*",
            "plugins.capture.*",
        ),
        *("plugins.weights.check", "plugins.weights.module_settings"),
        *("plugins.weights.causes", "plugins.weights.graph"),
        "plugins.pipelines.drawing.*",
        *("plugins.start.doctor.child", "plugins.bench.torch_module"),
    ),
    "onnx": (
        *("core.onnx_header", "core.onnx_ports", "plugins.start.init.bits"),
        *("runtimes.pytorch.export", "runtimes.graph.*", "plugins.foreign.files.*"),
        *("runtimes.onnxruntime.*", "runtimes.mnn.*", "plugins.start.doctor.child"),
        *("plugins.explain.cut", "plugins.explain.redraw", "plugins.explain.evaluated"),
        *("plugins.patterns.mended", "plugins.patterns.operands"),
        *("plugins.weights.check", "plugins.weights.attribute*"),
    ),
    "onnx_ir": (
        "runtimes.pytorch.*",
        "plugins.weights.check",
        "plugins.foreign.files.*",
    ),
    "onnxscript": ("runtimes.pytorch.translation",),  # torch.onnx imports the rest
    "onnxruntime": ("runtimes.onnxruntime.*",),
    "MNN": ("runtimes.mnn.*",),
    "cv2": ("plugins.pipelines.drawing.hints", "measure.pictures"),
    "skimage": ("measure.pictures",),
    "jinja2": ("plugins.page.*", "plugins.start.init.render"),
    "plotly": ("plugins.page.*", "plugins.bench.section", "plugins.plan.page"),
    "flip_evaluator": ("measure.pictures",),
    "diffusers": ("recipes.*", "plugins.pipelines.drawing.*", "plugins.lora.*"),
    "transformers": ("recipes.*", "plugins.pipelines.drawing.metrics"),
}

# Here a framework is imported only inside the function that needs it: reading a suite,
# asking for help or starting pytest must not load one.
LATE = (
    *("core.onnx_*", "recipes.*", "commands.*", "plugins.*"),
    *("runtimes.mnn.convert", "plugin"),
)
# Only worker processes import these.
NOT_LATE = (
    *("recipes.inputs", "recipes.methods", "recipes.varied"),
    "plugins.bench.torch_module",
    *("plugins.tune.draws", "plugins.patterns.*", "plugins.weights.*"),
    "plugins.contracts.runs.*",
    *("plugins.explain.cut", "plugins.explain.redraw", "plugins.explain.evaluated"),
    *("plugins.card.*", "plugins.elsewhere.*", "plugins.pipelines.drawing.*"),
    *(f"plugins.foreign.files.{name}" for name in ("lineup", "onnx_ref*", "pairing")),
    "plugins.foreign.files.take",
)


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "harness"


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def rank(module):
    """Return how high a module stands; `harness` itself holds its version alone."""
    package = module.partition(".")[0]
    if module == "harness":
        return -1
    return (*PACKAGES, *ABOVE).index(package)


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
    """Name each import of a tree that goes to a package above its own."""
    return [
        f"{module} imports {name}"
        for name in own_imports(tree)
        if rank(name) > rank(module)
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


def test_every_module_stands_in_one_of_the_packages():
    above = {"harness", *ABOVE}
    strangers = [m for m in MODULES if m.partition(".")[0] not in (*PACKAGES, *above)]

    assert strangers == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_lower_packages(module):
    assert upward(module, read(module)) == []


@pytest.mark.parametrize(
    "module", [name for name in MODULES if not name.startswith("plugins")]
)
def test_the_core_names_no_plug_in(module):
    held = [
        node.value for node in ast.walk(read(module)) if isinstance(node, ast.Constant)
    ]

    assert [n for n in own_imports(read(module)) if n.startswith("plugins")] == []
    assert [text for text in held if "harness.plugins." in str(text)] == []


def test_the_page_on_architecture_lists_every_plug_in():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = page.partition("| Plug-in | What it adds |")[2].partition("\n\n")[0]
    names = re.findall(r"^\| (.*?) \|", rows, re.MULTILINE)
    listed = re.findall(r"`(\w+)`", "".join(names))
    folders = (PACKAGE / "plugins").glob("*/__init__.py")
    assert set(listed) == {path.parent.name for path in folders}


def test_imports_form_no_circle_and_chains_of_sixteen_modules_at_most():
    below = {name: set(own_imports(top_of(read(name)))) - {name} for name in MODULES}
    # Who reads the last module of a chain may have to read all of them.
    depth: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():  # refuses a circle
        depth[name] = 1 + max((depth[one] for one in below[name]), default=0)

    assert [name for name in depth if depth[name] > 16] == []


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
    [
        name
        for name in MODULES
        if any(fnmatch(name, pattern) for pattern in LATE)
        and not any(fnmatch(name, pattern) for pattern in NOT_LATE)
    ],
)
def test_a_light_module_imports_frameworks_late(module):
    assert homeless(module, top_of(read(module)), {}) == []


@pytest.mark.parametrize("module", MODULES)
def test_nothing_imports_the_commands_of_the_mnn_wheel(module):
    banned = [name for name in imports_of(read(module)) if name.startswith("MNN.tools")]

    assert banned == [], "MNN.tools installs packages and posts to a log service."


def test_no_script_of_this_repository_calls_the_commands_of_the_mnn_wheel():
    folders = ("benchmarks", "docs", "fixtures", "tests")
    scripts = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    called = re.compile(r"^\s*(from|import) MNN\.tools", re.MULTILINE)

    assert [path for path in scripts if called.search(path.read_text())] == []


def unpacking(tree):
    """Name each call of a tree that unpickles arrays, or unpacks a whole archive.

    ruff knows such calls only by the full names of functions.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in {"extract", "extractall"}:
            yield f"line {node.lineno}: {node.attr}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            value = node.value
            if ast.unparse(value) != "False":
                yield f"line {value.lineno}: allow_pickle"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_unpickles_arrays_or_unpacks_an_archive_at_once(module):
    assert [*unpacking(read(module))] == []


@pytest.mark.parametrize(
    "code", ["tar.extractall(x)", "np.load(x, allow_pickle=True)", "f(allow_pickle=y)"]
)
def test_such_a_call_is_found(code):
    assert [*unpacking(ast.parse(code))]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_read_in_one_sitting(module):
    lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())

    assert lines <= MAX_LINES


@pytest.mark.parametrize("module", MODULES)
def test_a_runtime_is_named_in_its_own_folder_alone(module):
    own = [name for name in runtimes() if module.startswith(f"runtimes.{name}")]
    named = {
        node.value
        for node in ast.walk(read(module))
        if isinstance(node, ast.Constant) and node.value in set(runtimes())
    }

    assert named <= set(own)


@pytest.mark.parametrize("module", ["plugin", "plugins.bench.pytest_plugin"])
def test_a_pytest_plugin_is_cheap_to_import(module):
    code = f"import sys, harness.{module}; print(*sys.modules)"

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
            "judge.case",
            "from harness.engine import engine",
            ["judge.case imports engine.engine"],
            id="module-from-package",
        ),
        pytest.param(
            "core.outcome",
            "def f():\n    from harness.measure.compare import compare",
            ["core.outcome imports measure.compare"],
            id="inside-a-function",
        ),
        pytest.param(
            "core.errors", "from harness.core.outcome import Outcome", [], id="own"
        ),
        pytest.param("commands.run", "import harness.engine.run", [], id="down"),
        pytest.param(
            "engine.store", "from harness import __version__", [], id="version"
        ),
    ],
)
def test_an_import_upward_is_seen(module, source, found):
    assert upward(module, ast.parse(source)) == found


def test_a_framework_in_the_wrong_place_is_seen():
    tree = ast.parse("def f():\n    from torch import nn\n    import os")
    export = "runtimes.pytorch.export"

    assert homeless("judge.case", tree, HOMES) == ["judge.case imports torch"]
    assert homeless(export, tree, HOMES) == []
    assert homeless(export, top_of(tree), {}) == []
