"""`parity init` writes no suite that cannot be read, whatever a file calls its axes."""

import json
import shutil
import tomllib

import onnx
import pytest
from onnx import TensorProto, helper

from harness.core.errors import SuiteError
from harness.plugins.start.init.render import key, quoted
from harness.plugins.start.init.write import write_suite
from harness.suite.suite import load_suite
from tests.places import DIGITS, ODD_NAMES

AXES = {
    **ODD_NAMES,
    "umlaut": "ä",
    "key of the table": "layers",
    "product": "8*height",
    "quotient": "n/0",
    "table": "]\n[limits]\ntimeout_s = 1",
    "delete": "a\x7fb",
    "dots": "a.b",
    "unnamed": "?",
    "digits": "²",
}


def save(path, axes):
    """Write a file with an input, whose axes have these names, and an output."""
    axes = [*axes, 4]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, axes) for name in "xy"
    ]
    node = helper.make_node("Tanh", ["x"], ["y"])
    graph = helper.make_graph([node], "g", sides[:1], sides[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_an_axis_of_any_name_gets_a_size_in_a_suite_that_loads(tmp_path, axis):
    save(tmp_path / "model.onnx", ["batch", axis])

    write_suite(tmp_path, tmp_path / "suite")

    suite = load_suite(tmp_path / "suite")
    told = tomllib.loads((tmp_path / "suite" / "parity.toml").read_text("utf-8"))
    (shapes,) = told["shapes"]
    assert len(shapes) == 2
    assert shapes["batch"] == 2
    assert set(told) == {"shapes", "inputs", "backend", "component", "limits"}
    (component,) = suite.components
    assert component.inputs[0].bind(shapes)[0] == 2


def test_the_files_own_name_of_an_axis_stands_beside_ours(tmp_path):
    save(tmp_path / "model.onnx", ["batch size"])

    write_suite(tmp_path, tmp_path / "suite")

    text = (tmp_path / "suite" / "parity.toml").read_text("utf-8")
    assert '# the file calls this axis "batch size"\nx_0 = 2\n' in text


def test_one_name_that_can_be_no_symbol_is_one_size(tmp_path):
    save(tmp_path / "model.onnx", ["n + 1", "n + 1"])

    write_suite(tmp_path, tmp_path / "suite")

    (component,) = load_suite(tmp_path / "suite").components
    assert component.inputs[0].shape[:2] == ("x_0", "x_0")


@pytest.mark.parametrize("text", AXES.values(), ids=AXES)
def test_a_quoted_text_is_read_as_it_was(text):
    said = tomllib.loads(f"{key(text)} = {quoted(text)}\nlist = {quoted([text])}")

    assert said == {text: text, "list": [text]}


def test_a_class_that_a_comment_names_does_not_end_the_comment(tmp_path):
    root = tmp_path / "model"
    ignored = shutil.ignore_patterns("*.toml", "*.png")
    shutil.copytree(DIGITS, root, ignore=ignored)
    config = json.loads((root / "vae" / "config.json").read_text())
    config["_class_name"] = 'X\r\x1b[2J\x7f\n]\n[limits]\ntimeout_s = 1 # "'
    (root / "vae" / "config.json").write_text(json.dumps(config))

    write_suite(root, tmp_path / "suite")

    text = (tmp_path / "suite" / "parity.toml").read_text("utf-8")
    assert tomllib.loads(text)["limits"]["timeout_s"] == 900
    assert "\x1b" not in text


def test_a_suite_that_its_reader_refuses_is_not_written(tmp_path, monkeypatch):
    save(tmp_path / "model.onnx", ["batch"])
    # No file makes it write such a size, so this stands for a fault of its own.
    monkeypatch.setattr("harness.plugins.start.init.onnx_files._size", lambda _: 0)

    with pytest.raises(SuiteError, match=r"No suite of .* can be written"):
        write_suite(tmp_path, tmp_path / "suite")

    assert not (tmp_path / "suite").exists()
