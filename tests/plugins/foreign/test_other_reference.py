"""One ONNX file is compared with another, which the suite names as its reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from harness.core.case import ANOTHER_FILE
from harness.core.errors import ParityError, SuiteError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS
from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.plugins.start.init.write import write_suite
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS


def net(path, nodes, out="y", **weights):
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 8])
        for name in ("x", out)
    ]
    held = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], held)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


RNG = np.random.default_rng(0)
W = RNG.standard_normal((8, 8)).astype(np.float32)
V = RNG.standard_normal((8, 8)).astype(np.float32)
ONE = np.array([0.7], np.float32)
MATMUL = helper.make_node("MatMul", ["x", "w"], ["m"])
SCALE = helper.make_node("Mul", ["m", "one"], ["s"])
TANH = helper.make_node("Tanh", ["s"], ["t"])
END = helper.make_node("MatMul", ["t", "v"], ["y"])


@pytest.fixture
def before(tmp_path):
    return net(tmp_path / "before.onnx", [MATMUL, SCALE, TANH, END], w=W, v=V, one=ONE)


def folded(path, **weights):
    """Write the file as an optimiser leaves it: the factor is in the weight."""
    first = helper.make_node("MatMul", ["x", "w"], ["s"])
    held = {"w": W * ONE, "v": V, **weights}
    return net(path, [first, TANH, END], **held)


def run(suite_folder, store):
    """Run the ONNX Runtime case of a suite; return its record and its verdicts."""
    suite = load_suite(suite_folder)
    judge = Judge.of(suite, Settings())
    case = next(case for case in suite.cases if case.backend == "onnxruntime")
    with Engine(Store(root=store), suite.limits) as engine:
        record = engine.run(case)
    return record, {what: judge.check(record, what) for what in case.whats}


def paired(before, after, tmp_path):
    into = tmp_path / "suite"
    write_suite(before, into, after=after)
    return run(into, tmp_path / "store")


def test_a_file_that_an_optimiser_folded_agrees_with_the_one_before(before, tmp_path):
    record, verdicts = paired(before, folded(tmp_path / "after.onnx"), tmp_path)

    assert record.foreign["by"] == ANOTHER_FILE
    assert all(verdict.outcome.passed for verdict in verdicts.values())
    assert "m" in verdicts[LAYERS].reason  # the value that is in neither name


def test_a_file_that_an_optimiser_made_wrong_diverges_where_it_is_wrong(
    before, tmp_path
):
    after = folded(tmp_path / "after.onnx", w=W)  # the factor is lost
    _, verdicts = paired(before, after, tmp_path)

    assert verdicts[OUTPUTS].outcome is Outcome.EXCEEDS
    assert verdicts[LAYERS].first.row.probe == "s"
    assert not verdicts[OUTPUTS].itself


def test_a_file_alone_is_said_to_be_compared_with_itself(before, tmp_path):
    (root := tmp_path / "files").mkdir()
    before.rename(root / before.name)
    write_suite(root, tmp_path / "suite")
    _, verdicts = run(tmp_path / "suite", tmp_path / "store")

    assert verdicts[OUTPUTS].itself.startswith("compared with itself")


@pytest.mark.usefixtures("before")
def test_an_output_of_another_name_is_mapped(tmp_path):
    last = helper.make_node("MatMul", ["t", "v"], ["z"])
    first = helper.make_node("MatMul", ["x", "w"], ["s"])
    net(tmp_path / "after.onnx", [first, TANH, last], out="z", w=W * ONE, v=V)
    (suite := tmp_path / "suite").mkdir()
    (suite / "parity.toml").write_text(
        'components = ["net"]\n[[shapes]]\nbatch = 2\n[inputs]\n'
        'profiles = ["realistic"]\nrealistic = 1\n[backend.onnxruntime]\n'
        '[component.net]\nonnx = "../after.onnx"\nreference = "../before.onnx"\n'
        '[component.net.names]\ny = "z"\n'
    )
    (suite / "tolerances.toml").write_text(
        '[onnxruntime.given]\noutputs = "standard"\nlayers = { sqnr_db = 80.0 }\n'
        'why = "no float64 run"\n'
    )
    _, verdicts = run(suite, tmp_path / "store")

    assert all(verdict.outcome.passed for verdict in verdicts.values())


def test_a_pair_of_which_one_is_no_file_is_refused(before, tmp_path):
    for pair in ((before, tmp_path / "no.onnx"), (tmp_path, before)):
        with pytest.raises(SuiteError, match="is no file: give two ONNX files"):
            write_suite(pair[0], tmp_path / "suite", after=pair[1])
    assert not (tmp_path / "suite").exists()


@pytest.mark.usefixtures("before")
def test_a_reference_beside_pytorch_is_refused(tmp_path):
    (tmp_path / "parity.toml").write_text(
        f'components = ["unet"]\n[source]\ncheckpoint = "{DIGITS}"\n'
        "[[shapes]]\nbatch = 2\nheight = 8\nwidth = 8\n"
        '[backend.onnxruntime]\n[component.unet]\nonnx = "before.onnx"\n'
        'reference = "before.onnx"\n'
    )
    with pytest.raises(
        ParityError, match="compared with PyTorch; take `reference` out"
    ):
        load_suite(tmp_path)
