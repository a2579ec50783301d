"""Weights in a file beside a graph are converted as the tool would convert them."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.engine.export_files import MODEL, WEIGHTS
from harness.runtimes.onnxruntime.float16 import halve

ROWS = 4096


def weight(name, width):
    rng = np.random.default_rng(width)
    values = rng.standard_normal((width, ROWS)).astype(np.float32)
    values[0, :3] = 1e-9, 1e6, 0.0  # below and beyond float16, and nothing
    return numpy_helper.from_array(values, name)


@pytest.fixture
def inline():
    """Two products and a gather, all with a weight each; one of them may be kept."""
    weights = [weight("one", 8), weight("two", 16), weight("three", 32)]
    nodes = [
        helper.make_node("MatMul", ["x", "one"], ["y"], name="first"),
        helper.make_node("MatMul", ["x2", "two"], ["z"], name="second"),
        helper.make_node("Gather", ["three", "ids"], ["g"], name="third"),
        helper.make_node("Add", ["y", "z"], ["sum"], name="fourth"),
        helper.make_node("Add", ["sum", "g"], ["out"], name="fifth"),
    ]
    kinds = {"x": [1, 8], "x2": [1, 16]}
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in kinds.items()
    ]
    inputs.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [1]))
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, ROWS])
    graph = helper.make_graph(nodes, "weighty", inputs, [out], weights)
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def halved(model, folder, kept=(), *, beside):
    given, made = folder / "given", folder / "made"
    given.mkdir(parents=True)
    made.mkdir()
    onnx.save_model(
        model, given / MODEL, save_as_external_data=beside, location="theirs.bin"
    )
    halve(given / MODEL, made, kept)
    return made


@pytest.mark.parametrize("kept", [(), ("second",), ("first", "third")])
def test_weights_beside_a_graph_become_what_the_tool_makes_of_inner_ones(
    tmp_path, inline, kept
):
    within = halved(inline, tmp_path / "within", kept, beside=False)
    beside = halved(inline, tmp_path / "beside", kept, beside=True)

    assert {file.name for file in beside.iterdir()} == {MODEL, WEIGHTS}
    one, two = onnx.load(within / MODEL).graph, onnx.load(beside / MODEL).graph
    assert [n.SerializeToString() for n in one.node] == [
        n.SerializeToString() for n in two.node
    ]
    assert len(one.initializer) == len(two.initializer) == 3
    for left, right in zip(one.initializer, two.initializer, strict=True):
        assert left.name == right.name
        assert left.data_type == right.data_type
        assert np.array_equal(
            numpy_helper.to_array(left), numpy_helper.to_array(right), equal_nan=True
        )
    onnx.checker.check_model(str(beside / MODEL), full_check=True)


_PEAK = """
import sys, resource
from pathlib import Path
from harness.runtimes.onnxruntime.float16 import halve
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
halve(Path(sys.argv[1]), Path(sys.argv[2]), ())
print(peak() - before)
"""


def test_no_more_than_one_weight_is_in_memory(tmp_path):
    each = 16 * 2**20
    nodes, weights = [], []
    for place in range(12):
        values = np.zeros((1024, each // 4096), np.float32)
        weights.append(numpy_helper.from_array(values, f"w{place}"))
        nodes.append(helper.make_node("Add", ["x", f"w{place}"], [f"y{place}"]))
    info = helper.make_tensor_value_info
    x = info("x", TensorProto.FLOAT, [1])
    outs = [info(f"y{i}", TensorProto.FLOAT, None) for i in range(12)]
    graph = helper.make_graph(nodes, "wide", [x], outs, weights)
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    onnx.save_model(model, tmp_path / MODEL, save_as_external_data=True, location="w")
    (tmp_path / "made").mkdir()

    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(tmp_path / MODEL), str(tmp_path / "made")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) < 4 * each < 12 * each
