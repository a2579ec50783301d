"""`harness.core.onnx_header`: what a file takes and gives, read without onnx."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from harness.core.errors import SuiteError
from harness.core.onnx_header import DTYPES, read_header

EXPORTED = Path(__file__).parents[3] / "fixtures" / "exported"
FILES = sorted(EXPORTED.rglob("*.onnx"))


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
            DTYPES[value.type.tensor_type.elem_type] for value in values
        ]


def small(folder, *, external=False):
    """A model of one weight, which older files list among their inputs."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "small",
        [
            helper.make_tensor_value_info("x", kind, ["n", 4]),
            helper.make_tensor_value_info("w", kind, [4]),
        ],
        [helper.make_tensor_value_info("y", kind, ["n", 4])],
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


def test_weights_among_the_inputs_are_none(tmp_path):
    assert [port.name for port in read_header(small(tmp_path)).inputs] == ["x"]


def test_files_with_weights_are_named(tmp_path):
    assert read_header(small(tmp_path, external=True)).files == ("small.bin",)
    unet = EXPORTED / "mnn_scripts" / "unet" / "model.onnx"
    assert read_header(unet).files == ("weights.pb",)
    assert read_header(EXPORTED / "txtai" / "default.onnx").files == ()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: None, "there is no ONNX file at"),
        (lambda path: path.write_bytes(b""), "holds no graph"),
        (lambda path: path.write_text("not a model, but words"), "is no ONNX file"),
        (
            lambda path: path.write_bytes(FILES[0].read_bytes()[:4000]),
            "longer than the whole",
        ),
    ],
)
def test_what_is_no_onnx_file_is_refused_in_a_sentence(tmp_path, made, said):
    path = tmp_path / "some.onnx"
    made(path)
    with pytest.raises(SuiteError, match=said):
        read_header(path)
