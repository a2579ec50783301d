"""The command on ONNX files whose values have names that are no paths, and no code."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.core.runtime import runtime
from harness.engine.finished_run import load_report
from harness.plugins.explain.repro import _END
from tests.places import ODD_NAMES
from tests.plugin.project import Project, run_repro

pytestmark = pytest.mark.slow  # runs, each in processes of its own

MNN_LOSES = "nul"
"""MNN's converter ends a name at its first character 0."""

TAKEN = {key: name for key, name in ODD_NAMES.items() if key != MNN_LOSES}


def save(path, names):
    """Write a network with an input and an output of each name, and values between."""
    weight = numpy_helper.from_array(
        np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), "weight"
    )
    inputs, outputs, nodes = [], [], []
    for name in names:
        made, out = f"{name}1", f"{name}2"
        nodes.append(helper.make_node("MatMul", [name, "weight"], [made], name=made))
        nodes.append(helper.make_node("Tanh", [made], [out], name=out))
        sizes = (TensorProto.FLOAT, ["batch", 8])
        inputs.append(helper.make_tensor_value_info(name, *sizes))
        outputs.append(helper.make_tensor_value_info(out, *sizes))
    graph = helper.make_graph(nodes, "odd", inputs, outputs, [weight])
    opset = [helper.make_opsetid("", 17)]
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run of the first suite of such files, and where nothing may be written."""
    above = tmp_path_factory.mktemp("odd")
    project = Project(above / "one" / "two")
    save(project.path / "models" / "model.onnx", [*TAKEN.values(), "X", "x"])
    project.parity("init", "models", "--into", "suite").check(0)
    suite = ("--suite", "suite", "--store", "store")
    return project, suite, project.parity("run", *suite)


def test_every_name_is_drawn_run_and_compared(ran):
    project, _, ended = ran
    ended.check(0, "2 of 2 cases agree")
    (folder,) = project.path.glob("reports/runs/*")
    records = load_report(folder, str(folder)).records.values()
    rows = {row.probe for record in records for row in record.rows}
    assert {f"{name}2" for name in TAKEN.values()} <= rows


def test_nothing_is_written_outside_of_the_project(ran):
    project, _, _ = ran
    above = project.path.parents[1]
    assert [path.name for path in above.iterdir()] == ["one"]
    assert [path.name for path in (above / "one").iterdir()] == ["two"]
    names = {path.name for path in project.path.iterdir()}
    assert names == {"models", "suite", "store", "reports"}


def test_onnx_runtime_takes_a_name_with_a_nul(tmp_path):
    project = Project(tmp_path)
    save(tmp_path / "models" / "model.onnx", [ODD_NAMES[MNN_LOSES]])
    project.parity("init", "models", "--into", "suite").check(0)
    suite = ("--suite", "suite", "--store", "store")
    project.parity("run", "onnxruntime", *suite).check(0, "1 of 1 case agrees")


def test_the_ranges_of_values_with_such_names_are_said(ran):
    project, suite, _ = ran
    project.parity("ranges", *suite).check(0, "float16 holds every value")


def repro_of(name):
    """Return the script of a runtime, which is the same for every divergence."""
    parts = runtime(name).home / "repro.txt", _END
    return "".join(part.read_text(encoding="utf-8") for part in parts)


@pytest.mark.parametrize("key", ["quotes", "statement", "template", "backslash"])
def test_a_script_for_a_bug_report_has_no_name_in_its_code(ran, tmp_path, key):
    project, suite, _ = ran
    into = tmp_path / "repro"
    probe = ("--probe", f"{ODD_NAMES[key]}2", "--out", str(into))

    project.parity("repro", "onnxruntime", *suite, *probe).check(0)

    ended = run_repro(into)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {path.name for path in into.iterdir()} == {
        *("model.onnx", "inputs.npz", "expected.npy", "repro.py", "repro.json")
    }
    assert (into / "repro.py").read_text(encoding="utf-8") == repro_of("onnxruntime")
