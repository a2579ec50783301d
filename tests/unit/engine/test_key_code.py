"""`harness.engine.keys`: other code or another tool remakes what it made."""

import shutil
import sys
from dataclasses import replace
from importlib import metadata
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from harness.core.environment import _version, environment
from harness.engine import keys
from tests.unit.engine.key_parts import digests, keys_of, moved


@pytest.fixture
def forget():
    """Code and versions are read once a process; a test of them must leave none."""

    def clear():
        for read in (keys._code, keys.code_digest, keys._package_code, keys._files):
            read.cache_clear()
        keys.own_code_of.cache_clear()
        keys.code_of_plugins.cache_clear()
        _version.cache_clear()

    yield clear
    clear()


EXPORT_TOOLS = ("torch", "onnx", "onnxscript", "onnx-ir", "diffusers", "transformers")
DRAWING_TOOLS = ("torch", "diffusers", "transformers", "numpy", "tokenizers")
TOOLS = {
    "inputs": DRAWING_TOOLS,
    **dict.fromkeys(("onnx", "foreign onnx", "program"), EXPORT_TOOLS),
    **dict.fromkeys(("input sensitivity", "graph check"), EXPORT_TOOLS),
    "mnn": ("MNN",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "openvino": ("openvino", "nncf"),
    "foreign mnn": ("MNN",),
    "drawing inputs": (*DRAWING_TOOLS, "opencv-python", "opencv-python-headless"),
    **dict.fromkeys(("drawing", "effects"), DRAWING_TOOLS),
}


@pytest.mark.parametrize(
    ("kind", "tool"), [(kind, tool) for kind, tools in TOOLS.items() for tool in tools]
)
def test_another_version_remakes_what_it_made(given, monkeypatch, kind, tool, forget):
    before = digests(given, kind)
    forget()
    changed = {tool: "new"}
    monkeypatch.setattr(metadata, "version", lambda n: changed.get(n) or version(n))
    assert digests(given, kind) != before


@pytest.mark.parametrize("kind", TOOLS)
def test_a_tool_built_again_remakes_what_it_made(given, monkeypatch, kind, forget):
    before = digests(given, kind)
    forget()
    built = SimpleNamespace(read_text=lambda _: "MNN/lib.so,sha256=another,1")
    monkeypatch.setattr(keys, "distribution", lambda _: built)
    assert digests(given, kind) != before


@pytest.mark.parametrize(
    ("record", "is_other"),
    [
        ("my_layers.py,sha256=another,1\n", True),
        ("my_layers.py,sha256=one,1\n../../bin/show,sha256=another,1\n", False),
    ],
    ids=["other code", "a script of another environment"],
)
def test_a_recipes_package_is_built_again(
    record, is_other, tmp_path, monkeypatch, forget
):
    site = tmp_path / "site-packages"
    about = site / "my_layers-1.0.dist-info"
    about.mkdir(parents=True)
    (tmp_path / "my_net.py").write_text("import my_layers")
    (site / "my_layers.py").write_text("")
    (about / "METADATA").write_text("Name: my-layers\nVersion: 1.0\n")
    (about / "RECORD").write_text("my_layers.py,sha256=one,1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(site)

    before = keys._recipe_code("my_net")
    (about / "RECORD").write_text(record)
    forget()

    assert (keys._recipe_code("my_net") != before) is is_other


def test_a_library_of_a_native_converter_remakes_its_files(given, tmp_path):
    shutil.copy(given.folder / "converter", tmp_path / "converter")
    native = moved(given, "native", str(tmp_path / "converter"))
    before = digests(native, "mnn")
    (tmp_path / "express").mkdir()
    (tmp_path / "express" / "libMNN_Express.so").write_text("a library")
    assert digests(native, "mnn") != before


def test_weights_drawn_with_another_instruction_set_are_others(given, monkeypatch):
    trained = moved(given, "component.source.seed", None)
    drawn, read = (digests(one, "onnx") for one in (given, trained))
    other = replace(environment(), arch="aarch64")
    monkeypatch.setattr(keys, "environment", lambda: other)
    assert digests(given, "onnx") != drawn
    assert digests(trained, "onnx") == read


PLUGINS = ("plugins/foreign/files", "plugins/pipelines", "plugins/weights")
FOLDERS = (
    *("measure", "recipes", "runtimes/graph"),
    *(name for name in PLUGINS if (keys.HOME / name).is_dir()),
    *("runtimes/mnn", "runtimes/onnxruntime", "runtimes/openvino", "runtimes/pytorch"),
)
FILES = (
    *("core/contract.py", "core/onnx_header.py", "core/onnx_ports.py"),
    *("core/probes.py", "runtimes/renamed.py", "runtimes/session.py"),
    "measure/name_map.py",
)
RULES, NAMED = {*FILES[:4]}, {"measure", "measure/name_map.py"}
EXPORTED = {*NAMED, "recipes", "runtimes/graph", "runtimes/pytorch", *RULES}
FOREIGN = {*EXPORTED, "plugins/foreign/files", *FILES[4:6]}
CONVERTED = {"runtimes/graph", *RULES, "runtimes/renamed.py", "measure/name_map.py"}
PICTURES = {*NAMED, "recipes", "plugins/pipelines", "runtimes/pytorch"}
REMADE = {
    "inputs": {"recipes"},
    **dict.fromkeys(("onnx", "program", "reference", "input sensitivity"), EXPORTED),
    "graph check": {*EXPORTED, "plugins/weights"},
    "effects": {*EXPORTED, "runtimes/mnn"},
    "foreign onnx": FOREIGN,
    "weights": {"recipes", "runtimes/pytorch"},
    "mnn": {*CONVERTED, "runtimes/mnn"},
    "onnxruntime": {*CONVERTED, "runtimes/onnxruntime"},
    "openvino": {*CONVERTED, "runtimes/openvino"},
    "foreign mnn": {*FOREIGN, "runtimes/mnn"},
    **dict.fromkeys(("drawing inputs", "drawing"), PICTURES),
}
"""Each kind of entry, to the code that decides it."""


@pytest.mark.parametrize(
    "changed",
    ["my_net", "my_parts", "my_parts_of_parts", "loose/part", "whole/__init__"],
)
def test_an_own_recipe_is_all_that_it_imports(changed, tmp_path, monkeypatch, forget):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "whole", raising=False)  # of another folder
    texts = {
        "my_net": "import torch\nfrom my_parts import gain\nimport whole.inner",
        "my_parts": "def gain():\n    import my_parts_of_parts",
        "my_parts_of_parts": "from loose.part import GAIN",
        "loose/part": "GAIN = 1",  # no __init__.py stands beside it
        "whole/__init__": "",
        "whole/inner": "",
        "my_other_net": "",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)

    before = keys._recipe_code("my_net")
    (tmp_path / f"{changed}.py").write_text(f"{texts[changed]}\n# changed")
    (tmp_path / "my_other_net.py").write_text("# changed")
    forget()
    after = keys._recipe_code("my_net")
    (tmp_path / "my_other_net.py").write_text("")
    forget()

    assert after != before
    assert keys._recipe_code("my_net") == after


@pytest.mark.parametrize("part", [*FOLDERS, *FILES])
def test_a_changed_line_remakes_what_it_decides(
    part, given, tmp_path, monkeypatch, forget
):
    home = tmp_path / "copy" / "harness"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(keys.HOME, home, ignore=ignored)
    monkeypatch.setattr(keys, "HOME", home)
    forget()
    made = keys_of(given)
    before = {name: make() for name, make in made.items()}

    inside = (home / part, *sorted((home / part).rglob("[a-z]*.py")))
    apart = {home / file for file in FILES} - {home / part}
    changed = next(file for file in inside if file.is_file() and file not in apart)
    changed.write_text(f"{changed.read_text(encoding='utf-8')}\n# A line.\n")
    forget()

    remade = {name for name in before if before[name] != made[name]()}
    assert remade == {name for name, homes in REMADE.items() if part in homes}


def test_every_folder_of_code_that_a_worker_runs_is_in_a_key():
    runtimes = {path.parent for path in (keys.HOME / "runtimes").glob("*/__init__.py")}
    named = {keys.HOME / folder for folder in FOLDERS}
    # What it finds out is in a record, or is the answer to a file's contract.
    assert runtimes - named == {keys.HOME / "runtimes" / "candidate"}


@pytest.mark.parametrize("kind", ["question", "drawing question"])
def test_a_question_knows_neither_tools_nor_code(given, monkeypatch, kind):
    asked = digests(given, kind)
    monkeypatch.setattr(keys, "installed", lambda _names: {"torch": "another"})
    monkeypatch.setattr(keys, "code_digest", lambda _modules: "another")
    assert digests(given, kind) == asked
