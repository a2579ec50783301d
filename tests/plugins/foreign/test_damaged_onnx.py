"""A damaged or hostile ONNX file ends in one sentence, and nothing else is read."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.core.errors import SuiteError
from harness.core.onnx_header import read_header
from harness.plugins.start.init.write import write_suite
from harness.suite.suite import load_suite
from tests.plugin.project import called

FLOAT = TensorProto.FLOAT
SUITE = """\
components = ["net"]
shapes = [{ n = 2 }]
backend.onnxruntime.variants = ["given"]
component.net.onnx = "model.onnx"
"""


def model():
    """Return a network with a table, a sum, a constant, and a graph inside."""
    then, other = (
        helper.make_graph(
            [helper.make_node("Identity", ["sum"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for name in ("one", "two")
    )
    nodes = [
        helper.make_node("Cast", ["ids"], ["cast"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "cast"], ["rows"]),
        helper.make_node("Constant", [], ["c"], value=array("c", 1)),
        helper.make_node("Add", ["rows", "c"], ["sum"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT32, ["n", 3])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 3, 4])],
        [array("table", 9, 4), yes],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def array(name, *shape):
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def node_of(made, operator):
    return next(node for node in made.graph.node if node.op_type == operator)


def shortened(operator, field, kept=0):
    """Return a change that leaves so many of what an operator reads, makes or has."""

    def change(made):
        del getattr(node_of(made, operator), field)[kept:]

    return change


def inside_without_output(made):
    del node_of(made, "If").attribute[0].g.node[0].output[:]


def table(made):
    return made.graph.initializer[0]


def sized(size):
    def change(made):
        table(made).dims[0] = size

    return change


def cut_short(made):
    table(made).raw_data = table(made).raw_data[:-1]


def huge_input(made):
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1 << 50


def outside(tensor, **told):
    """Say that a tensor is in another file."""
    tensor.data_type, tensor.data_location = FLOAT, TensorProto.EXTERNAL
    for key, value in {"location": "w.data", **told}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def beside(**told):
    """Return a change that puts the table into another file."""

    def change(made):
        table(made).ClearField("raw_data")
        outside(table(made), **told)

    return change


def constant_above(made):
    held = node_of(made, "If").attribute[0].g.initializer.add(name="held", dims=[4])
    outside(held, location="../w.data")


def sparse_above(made):
    sparse = made.graph.sparse_initializer.add()
    sparse.values.name = "sparse"
    outside(sparse.values, location="../w.data")


DAMAGES = {
    "no output": (shortened("Cast", "output"), r"Cast'\) makes 0 values"),
    "no input": (shortened("Cast", "input"), r"Cast'\) reads 0 values"),
    "gathers by nothing": (
        shortened("Gather", "input", 1),
        r"Gather'\) reads 1 values",
    ),
    "adds one": (shortened("Add", "input", 1), r"Add'\) reads 1 values"),
    "no constant": (shortened("Constant", "attribute"), "has no value"),
    "inside, no output": (inside_without_output, r"Identity'\) makes 0 values"),
    "negative size": (sized(-9), "which no tensor can have"),
    "huge size": (sized(1 << 62), "which no tensor can have"),
    "huge input": (huge_input, "which no tensor can have"),
    "too few bytes": (cut_short, "has 143 bytes, and its shape"),
    "offset": (beside(offset="many"), "the offset of tensor 'table' is 'many'"),
    "length": (beside(length="1e9"), "the length of tensor 'table' is '1e9'"),
    "long number": (beside(offset="9" * 5000), "and no number"),
    "absolute": (beside(location="/etc/passwd"), "outside its own folder"),
    "above": (beside(location="../w.data"), "outside its own folder"),
    "above, later": (beside(location="a/../../w.data"), "outside its own folder"),
    "windows": (beside(location="..\\w.data"), "outside its own folder"),
    "drive": (beside(location="C:\\w.data"), "outside its own folder"),
    "long name": (beside(location="w" * 300), "which no file can be called"),
    "nul": (beside(location="w\0.bin"), "which no file can be called"),
    "no name": (beside(location=""), "which is outside"),
    "not there": (beside(location="other.data"), "is not there"),
    "a folder": (beside(location="folder"), "is not there"),
    "a link": (beside(location="link.data"), "outside its own folder"),
    "a name of ours": (beside(location="probes.json"), "gives to a file of its own"),
    "inside, above": (constant_above, "outside its own folder"),
    "sparse, above": (sparse_above, "outside its own folder"),
}


def save(folder: Path, change=lambda _: None) -> Path:
    """Write the damaged file, and what its weights may be taken from."""
    made = model()
    change(made)
    (folder / "model").mkdir()
    (folder / "w.data").write_bytes(bytes(144))
    (folder / "model" / "folder").mkdir()
    (folder / "model" / "probes.json").write_bytes(bytes(144))
    (folder / "model" / "link.data").symlink_to(folder / "w.data")
    path = folder / "model" / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_the_file_itself_is_healthy(tmp_path):
    path = save(tmp_path)
    assert read_header(path).rows == {"ids": 9}
    assert write_suite(path.parent, tmp_path / "suite")


@pytest.mark.parametrize(("change", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_refused_before_a_suite_is_written(tmp_path, change, said):
    path = save(tmp_path, change)
    with pytest.raises(SuiteError, match=said) as refused:
        write_suite(path.parent, tmp_path / "suite")
    assert "model.onnx" in str(refused.value)
    assert len(str(refused.value)) < 600
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(("change", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_suite_that_names_a_damaged_file_is_refused(tmp_path, change, said):
    path = save(tmp_path, change)
    (path.parent / "parity.toml").write_text(SUITE)
    with pytest.raises(SuiteError, match=said):
        load_suite(path.parent)


@pytest.mark.parametrize("command", ["run", "ranges"])
@pytest.mark.parametrize("damage", ["no output", "offset", "above", "long name"])
def test_a_command_ends_in_a_sentence(tmp_path, command, damage):
    path = save(tmp_path, DAMAGES[damage][0])
    (path.parent / "parity.toml").write_text(SUITE)
    (path.parent / "tolerances.toml").write_text("")
    ended = called(path.parent, command, "--store", str(tmp_path / "store"))
    ended.check(2, "model.onnx")
    assert "error of the harness" not in ended.text


def test_a_name_that_is_no_text_is_refused(tmp_path):
    path = save(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"cast", b"\xff\xfe\xfd\xfc"))
    with pytest.raises(SuiteError, match="which is no text"):
        read_header(path)


def test_graphs_inside_of_each_other_have_an_end(tmp_path):
    path = save(tmp_path)
    made = onnx.load(path)
    content = made.graph.node[4].SerializeToString()
    for _ in range(200):  # protobuf's own writer refuses such a depth
        content = field(1, content)  # a node of a graph
        content = field(5, field(1, b"b") + field(6, content))  # a node's attribute
    path.write_bytes(path.read_bytes() + field(7, field(1, content)))

    with pytest.raises(SuiteError, match="is no ONNX file"):
        read_header(path)


def field(number, content):
    """Return a field of protobuf that has bytes."""
    length, rest = b"", len(content)
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(SuiteError, match="it is no plain file"):
        read_header(tmp_path / "model.onnx")
