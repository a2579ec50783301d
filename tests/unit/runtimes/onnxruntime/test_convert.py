"""ONNX Runtime's variants keep the signature and can be loaded."""

import numpy as np
import onnx
import pytest

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL, WEIGHTS
from harness.runtimes.onnxruntime import RUNTIME, SIGNED
from harness.runtimes.onnxruntime import convert as transforming
from harness.runtimes.onnxruntime.convert import transform_onnx
from tests.unit import nets

EXPORTERS = ("dynamo", "torchscript")
# Of the largest output; the model's numbers are of the order of one.
ALLOWED = {"fp16": 1e-2, "int8-weights": 1e-1, "int8-static": 1e-1}
CALIBRATION = [nets.feeds(nets.BLOCKS)]

KINDS = [kind for kind in RUNTIME.variants if kind not in RUNTIME.as_exported]


def signature(path):
    graph = onnx.load(path, load_external_data=False).graph
    return [
        (v.name, v.type.tensor_type.elem_type, len(v.type.tensor_type.shape.dim))
        for v in (*graph.input, *graph.output)
    ]


@pytest.fixture(params=EXPORTERS)
def source(request, blocks_files):
    return blocks_files[request.param] / MODEL


def check(source, target, kind):
    onnx.checker.check_model(str(target))
    assert signature(target) == signature(source)
    feeds = nets.feeds(nets.BLOCKS)
    made = nets.by_onnxruntime(target, feeds)
    for name, one in nets.by_onnxruntime(source, feeds).items():
        two = made[name]
        assert two.dtype == np.float32
        assert 0 < np.abs(one - two).max() < ALLOWED[kind] * np.abs(one).max()


def weight_types(folder):
    graph = onnx.load(folder / MODEL).graph
    return {t.data_type for t in graph.initializer if len(t.dims) > 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_keeps_names_and_types_of_inputs_and_outputs(tmp_path, source, kind):
    transform_onnx(source, kind, tmp_path, (), CALIBRATION)
    assert {path.name for path in tmp_path.iterdir()} == {MODEL}
    check(source, tmp_path / MODEL, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_weights_beside_a_graph_are_read_and_written(
    tmp_path, monkeypatch, kind, exporter
):
    given, small, large = (tmp_path / name for name in ("given", "small", "large"))
    for folder in (given, small, large):
        folder.mkdir()
    nets.export(nets.Blocks(), nets.BLOCKS, given, exporter, external_data=True)
    assert (given / WEIGHTS).is_file()

    transform_onnx(given / MODEL, kind, small, (), CALIBRATION)
    check(given / MODEL, small / MODEL, kind)

    monkeypatch.setattr(transforming, "PROTO_LIMIT_BYTES", 1024)
    transform_onnx(given / MODEL, kind, large, (), CALIBRATION)
    check(given / MODEL, large / MODEL, kind)
    graph = onnx.load(large / MODEL, load_external_data=False).graph
    outside = [t for t in graph.initializer if t.data_location == t.EXTERNAL]
    places = {e.value for t in outside for e in t.external_data if e.key == "location"}
    assert len(places) == 1
    assert {path.name for path in large.iterdir()} == {MODEL, *places}


def test_half_precision_is_in_the_file(tmp_path, source):
    transform_onnx(source, "fp16", tmp_path)
    assert weight_types(tmp_path) == {onnx.TensorProto.FLOAT16}


def test_products_have_integer_weights_and_convolutions_do_not(tmp_path, source):
    transform_onnx(source, "int8-weights", tmp_path)
    graph = onnx.load(tmp_path / MODEL).graph
    ops = [node.op_type for node in graph.node]
    assert ops.count("MatMulInteger") >= 6
    assert ops.count("Conv") == 2
    # Signed weights would saturate on a processor without VNNI.
    assert onnx.TensorProto.UINT8 in weight_types(tmp_path)
    assert onnx.TensorProto.INT8 not in weight_types(tmp_path)


def scales(source, folder, inputs):
    folder.mkdir()
    transform_onnx(source, "int8-static", folder, (), [inputs])
    graph = onnx.load(folder / MODEL).graph
    operators = {node.op_type for node in graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= operators
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.name.endswith("_scale")
    }


def test_static_scales_follow_the_inputs_of_the_calibration(tmp_path, source):
    small = nets.feeds(nets.BLOCKS)
    large = {n: v * 8 if v.dtype.kind == "f" else v for n, v in small.items()}
    one = scales(source, tmp_path / "one", small)
    two = scales(source, tmp_path / "two", large)
    assert two["image_scale"] == pytest.approx(8 * one["image_scale"])
    assert two["conv_in.weight_scale"] == one["conv_in.weight_scale"]


def test_a_variant_that_is_no_model_is_refused(tmp_path, source, monkeypatch):
    def spoil(_source, folder, _kept):
        broken = onnx.ModelProto(ir_version=8)
        broken.graph.node.add(op_type="Add", input=["nowhere"], output=["out"])
        onnx.save(broken, folder / MODEL)

    monkeypatch.setattr(transforming, "halve", spoil)

    with pytest.raises(
        StageError, match=r"fp16 variant of model\.onnx is no valid"
    ) as e:
        transform_onnx(source, "fp16", tmp_path)
    assert e.value.outcome is Outcome.CONVERT


def test_a_scale_for_each_channel_is_a_flag_of_integers_alone(tmp_path, blocks_files):
    source = blocks_files["torchscript"] / MODEL
    sizes = {}
    for flags in ((), ("--per-channel",)):
        folder = tmp_path / str(len(flags))
        folder.mkdir()
        transform_onnx(source, "int8-weights", folder, flags)
        graph = onnx.load(folder / MODEL).graph
        scales = [t for t in graph.initializer if t.name.endswith("_scale")]
        sizes[flags] = max(int(np.prod(t.dims)) for t in scales)

    assert sizes[()] == 1
    assert sizes["--per-channel",] > 1
    with pytest.raises(StageError, match="'--per-channel' is no flag of this variant"):
        transform_onnx(source, "fp16", tmp_path, ("--per-channel",))


def test_integers_are_signed_where_a_flag_says_so(tmp_path, blocks_files):
    source = blocks_files["torchscript"] / MODEL
    transform_onnx(source, "int8-weights", tmp_path, (SIGNED,))
    assert onnx.TensorProto.INT8 in weight_types(tmp_path)
    assert onnx.TensorProto.UINT8 not in weight_types(tmp_path)


def gemms(folder, named):
    """Write a file with two Gemms in a row, which may have no names."""
    folder.mkdir()
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        gemms (float[2, 4] x) => (float[2, 4] z) { y = Gemm (x, w) z = Gemm (y, w) }
    """)
    weights = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    model.graph.initializer.append(weights)
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}" if named else ""
    onnx.save(model, folder / MODEL)
    return folder / MODEL


def test_a_gemm_that_a_flag_keeps_is_not_quantized(tmp_path):
    """The tool makes a MatMul of another name of it before it leaves nodes out."""
    out = tmp_path / "out"
    out.mkdir()
    transform_onnx(
        gemms(tmp_path / "given", named=True), "int8-weights", out, ("--keep=y",)
    )
    types = [node.op_type for node in onnx.load(out / MODEL).graph.node]
    assert (types.count("MatMul"), types.count("MatMulInteger")) == (1, 1)


def test_a_node_without_a_name_cannot_be_kept_alone(tmp_path):
    model = gemms(tmp_path / "given", named=False)
    with pytest.raises(StageError, match="makes 'y' has no name of its own"):
        transform_onnx(model, "int8-weights", tmp_path, ("--keep=y",))
    # All of them can be.
    transform_onnx(model, "int8-weights", tmp_path, ("--keep=Gemm",))
