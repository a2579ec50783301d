"""`harness.core.onnx_weights`: every byte beside an ONNX file is asked for."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from harness.core.errors import SuiteError
from harness.core.onnx_weights import lacking_onnx

EXPORTED = Path(__file__).parents[3] / "fixtures" / "exported"
FILES = sorted(EXPORTED.rglob("*.onnx"))
FLOAT = onnx.TensorProto.FLOAT


def beside(name="w", **about):
    """A tensor of eight numbers that another file holds."""
    tensor = onnx.numpy_helper.from_array(np.ones(8, np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": 64, **about}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def constant(tensor):
    return helper.make_node("Constant", [], [tensor.name], value=tensor)


def graph(nodes=(), tensors=(), takes=("x",)):
    ports = [helper.make_tensor_value_info(name, FLOAT, [8]) for name in takes]
    out = helper.make_tensor_value_info("y", FLOAT, [8])
    add = helper.make_node("Add", ["x", "w"], ["y"])
    return helper.make_graph([*nodes, add], "g", ports, [out], list(tensors))


def branches():
    """Two graphs in a node, of which the second holds the tensor."""
    inner = graph([constant(beside())], takes=())
    condition = helper.make_node("Cast", ["x"], ["c"], to=onnx.TensorProto.BOOL)
    other = graph(tensors=[onnx.numpy_helper.from_array(np.ones(8, np.float32), "w")])
    chosen = helper.make_node("If", ["c"], ["w"], then_branch=other, else_branch=inner)
    return graph([condition, chosen])


PLACES = {
    "initializer": graph(tensors=[beside()]),
    "constant": graph([constant(beside())]),
    "branch": branches(),
}


@pytest.fixture
def lacking(tmp_path):
    """What is said of a graph beside whose file another has so many bytes."""

    def say(made, present):
        path = tmp_path / "some.onnx"
        path.write_bytes(helper.make_model(made).SerializeToString())
        if present is not None:
            (tmp_path / "w.bin").write_bytes(bytes(present))
        return lacking_onnx(path)

    return say


@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: str(path.relative_to(EXPORTED))
)
def test_files_that_are_whole_lack_nothing(path):
    assert lacking_onnx(path) == ""


@pytest.mark.parametrize("place", PLACES)
def test_a_file_is_short_by_its_last_byte_wherever_the_tensor_stands(lacking, place):
    assert lacking(PLACES[place], 64 + 32) == ""
    said = lacking(PLACES[place], 64 + 31)

    assert "some.onnx keeps 'w' in w.bin up to byte 96" in said
    assert "that file has 95 bytes, so 1 of them are missing" in said


@pytest.mark.parametrize(
    ("about", "present", "said"),
    [
        pytest.param({"length": 40}, 96, "up to byte 104", id="says-more"),
        pytest.param({"length": 16}, 96, "its shape [8] needs 32", id="says-less"),
        pytest.param({"offset": -8}, 96, "which no file can have", id="before-it"),
        pytest.param({}, None, "has 0 bytes", id="no-file"),
    ],
)
def test_a_tensor_that_cannot_be_right_is_said(lacking, about, present, said):
    assert said in lacking(graph(tensors=[beside(**about)]), present)


def test_a_graph_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "some.onnx"
    data = FILES[0].read_bytes()
    for size in (1, len(data) // 3, len(data) - 9):
        path.write_bytes(data[:size])
        with pytest.raises(SuiteError, match="is no ONNX file, or is cut short"):
            lacking_onnx(path)
