"""`harness.core.onnx_header`: a file's inputs, outputs and external data."""

import numpy as np
import onnx
import pytest
from onnx import helper

from harness.core.errors import SuiteError
from harness.core.onnx_header import lacking_onnx, read_header
from tests.places import EXPORTED

FILES = sorted(EXPORTED.rglob("*.onnx"))
FLOAT = onnx.TensorProto.FLOAT


def sizes(value):
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value or dim.dim_param for dim in dims)


@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(EXPORTED).as_posix()
)
def test_it_reads_what_onnx_reads(path):
    graph = onnx.load(path).graph
    header = read_header(path)
    for ports, values in ((header.inputs, graph.input), (header.outputs, graph.output)):
        assert [port.name for port in ports] == [value.name for value in values]
        assert [port.shape for port in ports] == [sizes(value) for value in values]
        assert [port.dtype for port in ports] == [
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
            for value in values
        ]


def small(folder, *, external=False):
    """A model of one weight, which older files list among their inputs."""
    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "small",
        [
            helper.make_tensor_value_info("x", FLOAT, ["n", 4]),
            helper.make_tensor_value_info("w", FLOAT, [4]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 4])],
        [weight],
    )
    path = folder / "small.onnx"
    onnx.save_model(
        helper.make_model(graph),
        path,
        save_as_external_data=external,
        location="small.bin",
        size_threshold=0,
    )
    return path


@pytest.mark.parametrize("what", ["opset", "IR version"])
def test_a_file_of_a_version_that_onnx_does_not_know_is_refused_at_once(tmp_path, what):
    path = small(tmp_path)
    model = onnx.load(path)
    if what == "opset":
        model.opset_import[0].version = 99
    else:
        model.ir_version = 99
    onnx.save(model, path)

    with pytest.raises(SuiteError, match=rf"it is of {what} 99, and the newest that"):
        read_header(path)


def test_weights_among_the_inputs_are_none(tmp_path):
    assert [port.name for port in read_header(small(tmp_path)).inputs] == ["x"]


def test_files_with_weights_are_named(tmp_path):
    assert read_header(small(tmp_path, external=True)).files == ("small.bin",)
    unet = EXPORTED / "mnn_scripts" / "unet" / "model.onnx"
    assert read_header(unet).files == ("weights.pb",)
    assert read_header(EXPORTED / "txtai" / "default.onnx").files == ()


def test_an_axis_of_size_0_is_fixed_and_one_of_size_minus_1_is_open(tmp_path):
    takes = helper.make_tensor_value_info("x", FLOAT, [0, -1, "n", None])
    gives = helper.make_tensor_value_info("y", FLOAT, None)
    node = helper.make_node("Identity", ["x"], ["y"])
    made = helper.make_graph([node], "empty", [takes], [gives])
    path = tmp_path / "empty.onnx"
    path.write_bytes(helper.make_model(made).SerializeToString())

    (port,) = read_header(path).inputs
    assert port.shape == (0, "", "n", "")
    assert str(port) == "float32 [0, ?, n, ?]"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: None, "there is no ONNX file at"),
        (lambda path: path.write_bytes(b""), "holds no graph"),
        (lambda path: path.write_text("not a model, but words"), "is no ONNX file"),
        (lambda path: path.write_bytes(FILES[0].read_bytes()[:4000]), "is cut short"),
    ],
)
def test_what_is_no_onnx_file_is_refused_in_a_sentence(tmp_path, made, said):
    path = tmp_path / "some.onnx"
    made(path)
    with pytest.raises(SuiteError, match=said):
        read_header(path)


# Rows that inputs look up

NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (int64[N, T] ids, int64[N, T] kinds, float[N] scale) => (float out)
<
    float[50, 2] words, float[40, 2] places, int8[7, 2] types,
    float step, int8 zero, int64[1] axes = {0}
>
{
    cast = Cast <to = 6> (ids)
    wider = Unsqueeze (cast, axes)
    looked = Gather (words, wider)
    again = Gather (places, ids)
    table = DequantizeLinear (types, step, zero)
    typed = Gather (table, kinds)
    sum = Add (looked, typed)
    all = Add (sum, again)
    out = ReduceSum <keepdims = 0> (all)
}
"""


def saved_net(folder):
    path = folder / "model.onnx"
    model = onnx.parser.parse_model(NET)
    for name, rows in (("words", 50), ("places", 40), ("types", 7)):
        kind = onnx.TensorProto.INT8 if name == "types" else FLOAT
        weight = helper.make_tensor(name, kind, (rows, 2), [0] * rows * 2)
        model.graph.initializer.append(weight)
    onnx.save(model, path)
    return path


def test_an_input_is_held_below_the_shortest_table_that_it_reaches(tmp_path):
    assert read_header(saved_net(tmp_path)).rows == {"ids": 40, "kinds": 7}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("txtai/pooling", {"input_ids": 64, "token_type_ids": 2}),
        ("optimum/text_encoder/model", {"input_ids": 98}),
        ("optimum/unet/model", {}),
    ],
)
def test_it_reads_files_of_real_exporters(name, rows):
    assert read_header(EXPORTED / f"{name}.onnx").rows == rows


# Weights in other files


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


def test_a_missing_file_of_weights_has_one_wording(lacking):
    assert lacking(PLACES["initializer"], None) == (
        "some.onnx keeps 'w' in w.bin, which is not there; fetch or copy "
        "w.bin again, or export the model again."
    )


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
        pytest.param({}, None, "which is not there", id="no-file"),
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
