"""Weights in a file beside a graph are converted as the tool would convert them."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

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
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        weighty (float[1, 8] x, float[1, 16] x2, int64[1] ids) => (float[1, {ROWS}] out)
        {{
            y = MatMul (x, one)
            z = MatMul (x2, two)
            g = Gather (three, ids)
            sum = Add (y, z)
            out = Add (sum, g)
        }}
    """)
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
    weights = [weight("one", 8), weight("two", 16), weight("three", 32)]
    model.graph.initializer.extend(weights)
    return model


def halved(model, folder, kept, *, beside):
    given, made = folder / "given", folder / "made"
    given.mkdir(parents=True)
    made.mkdir()
    onnx.save_model(
        model, given / MODEL, save_as_external_data=beside, location="theirs.bin"
    )
    halve(given / MODEL, made, kept)
    return made


@pytest.mark.parametrize("kept", [(), ("node_z",), ("node_y", "node_g")])
def test_weights_beside_a_graph_become_what_inner_ones_do(tmp_path, inline, kept):
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
    outputs = ", ".join(f"float y{place}" for place in range(12))
    nodes = " ".join(f"y{place} = Add (x, w{place})" for place in range(12))
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]>'
        f"wide (float[1] x) => ({outputs}) {{ {nodes} }}"
    )
    values = np.zeros((1024, each // 4096), np.float32)
    model.graph.initializer.extend(
        numpy_helper.from_array(values, f"w{place}") for place in range(12)
    )
    onnx.save_model(model, tmp_path / MODEL, save_as_external_data=True, location="w")
    (tmp_path / "made").mkdir()

    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(tmp_path / MODEL), str(tmp_path / "made")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) < 4 * each < 12 * each
