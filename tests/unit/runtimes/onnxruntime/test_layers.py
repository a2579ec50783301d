"""`harness.runtimes.onnxruntime.layers`: they foretell what the tool stores."""

import shutil

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.rounding import Trials
from harness.engine.export_files import MODEL
from harness.engine.store import Store
from harness.runtimes.onnxruntime import HALVE, KEEP
from harness.runtimes.onnxruntime.convert import transform_onnx
from harness.runtimes.onnxruntime.layers import (
    choices,
    float_weights,
    in_half,
    integers_of,
    plan_text,
    rounded,
    rounded_inputs,
    spent_on,
    stored,
    stored_bytes,
)
from harness.runtimes.onnxruntime.session import open_session
from harness.runtimes.pytorch.reference import run_of
from harness.runtimes.pytorch.rounded import Roundable, effects
from tests.unit import nets

EXPORTERS = ("dynamo", "torchscript")
ENDS = ("", "_quantized")
LINEAR = {f"attention.to_{name}" for name in ("q", "k", "v", "out")} | {"ff.0", "ff.2"}
CONVOLUTIONS = {"conv_in", "conv_out"}


@pytest.fixture(params=EXPORTERS)
def exact(request, blocks_files):
    return blocks_files[request.param] / MODEL


def converted(exact, folder, bits):
    """Return the weights of a file with some bits for each layer."""
    folder.mkdir(exist_ok=True)
    transform_onnx(exact, "int8-weights", folder, plan_text(bits).splitlines())
    graph = onnx.load(folder / MODEL).graph
    return {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}


def all_in(exact, bits):
    """The bits of each layer, or the fewest that it may have."""
    return {layer.name: max(bits, min(choices(layer))) for layer in stored(exact)}


def products(exact):
    return [layer for layer in stored(exact) if layer.is_product]


def test_the_rounding_is_bit_equal_to_what_the_tool_stores(exact, tmp_path):
    found = converted(exact, tmp_path, all_in(exact, 8))
    for layer in products(exact):
        name = layer.weights.name
        values, scale = integers_of(float_weights(exact, layer), 8)
        signed = found[f"{name}_quantized"].astype(np.int16) - 128
        np.testing.assert_array_equal(values.T, signed)
        assert scale == found[f"{name}_scale"]
        assert found[f"{name}_zero_point"] == 128


def test_weights_in_float16_are_stored_as_they_are_foretold(exact, tmp_path):
    found = converted(exact, tmp_path, all_in(exact, 16))
    for layer in stored(exact):
        values = found[f"{layer.weights.name}_half"]
        values = values if layer.has_rows else values.T
        np.testing.assert_array_equal(values, in_half(float_weights(exact, layer)))
        assert layer.weights.name not in found


@pytest.mark.parametrize("bits", [16, 8])
def test_the_size_of_a_layer_is_known_before_it_is_converted(exact, tmp_path, bits):
    few, floats = all_in(exact, bits), all_in(exact, 32)
    before, after = (
        sum(one.nbytes for one in converted(exact, tmp_path, each).values())
        for each in (floats, few)
    )

    saved = [
        stored_bytes(one, 32) - stored_bytes(one, few[one.name])
        for one in stored(exact)
    ]

    assert before - after == sum(saved)


def test_layers_in_float32_and_float16_and_integers_share_a_file(exact, tmp_path):
    first, second, *others = products(exact)
    bits = all_in(exact, 8) | {first.name: 32, second.name: 16}
    names = {*converted(exact, tmp_path, bits)}
    assert {first.weights.name, f"{second.weights.name}_half"} <= names
    assert {f"{one.weights.name}_quantized" for one in others} <= names


def test_a_layer_that_both_flags_name_stays_in_float32(exact, tmp_path):
    layer, *_ = stored(exact)
    flags = (f"{KEEP}{layer.name}", f"{HALVE}{layer.name}")
    transform_onnx(exact, "int8-weights", tmp_path, flags)
    tensors = onnx.load(tmp_path / MODEL).graph.initializer
    assert layer.weights.name in {one.name for one in tensors}


def test_a_name_that_no_layer_makes_is_refused(exact, tmp_path):
    with pytest.raises(StageError, match=r"--half=other: no MatMul"):
        converted(exact, tmp_path, {"other": 16})


@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])
def test_inputs_are_rounded_bit_for_bit_as_the_runtime_does(shift):
    values = np.random.default_rng(0).normal(shift, size=(3, 7, 5)).astype(np.float32)
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        inputs (float[3, 7, 5] x) => (float[3, 7, 5] y) {
            steps, scale, zero = DynamicQuantizeLinear (x)
            y = DequantizeLinear (steps, scale, zero)
        }
    """)

    expected = nets.by_onnxruntime(model.SerializeToString(), {"x": values})

    np.testing.assert_array_equal(rounded_inputs(values), expected["y"])


def test_a_weight_beyond_float16_becomes_its_largest_number():
    weights = np.array([1e6, -1e6, 1.0], np.float32)
    np.testing.assert_array_equal(rounded(weights, 16), [65504, -65504, 1])


@pytest.mark.parametrize("function", [lambda x: rounded(x, 8), rounded_inputs])
def test_zeros_stay_zeros(function):
    zeros = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(function(zeros), zeros)


@pytest.mark.parametrize("number", [16, 8])
def test_the_file_computes_with_rounded_weights_and_inputs(exact, tmp_path, number):
    bits = all_in(exact, number)
    converted(exact, tmp_path / "planned", bits)

    def copy(folder):
        shutil.copytree(exact.parent, folder, dirs_exist_ok=True)
        return {}

    given = Trials(
        backend="onnxruntime",
        component=nets.BLOCKS,
        artifact=Store(root=tmp_path / "store").make("onnx", {"of": "blocks"}, copy),
        model=MODEL,
        device=Device(),
        trials=(tuple(bits.items()), ()),
    )
    network = Roundable(nets.Blocks(), given)
    run = run_of(network.module, nets.BLOCKS, "cpu")
    feeds = nets.feeds(nets.BLOCKS)

    found = effects(network, given, lambda: run(feeds))

    # ONNX Runtime's integer kernels saturate on a processor without VNNI.
    planned = ReferenceEvaluator(str(tmp_path / "planned" / MODEL))
    made = dict(zip(planned.output_names, planned.run(None, feeds), strict=True))
    rms = [
        np.sqrt(np.mean((made[name] - run(feeds)[name]) ** 2)) for name in found.rows
    ]
    assert np.sqrt(found.errors[0]) == pytest.approx(rms, rel=0.02)
    assert found.errors[1] == (0.0, 0.0)
    modules = {name for names in found.parameters.values() for name in names}
    assert modules == LINEAR | CONVOLUTIONS


def clocked(folder, bits, exact):
    """The times of the operators of a file with some bits, as deployed."""
    converted(exact, folder, bits)
    with open_session(folder / MODEL, Device(threads=1), ["map", "pooled"]) as session:
        return session.clock(nets.feeds(nets.BLOCKS), 3)


@pytest.mark.parametrize("bits", [32, 8])
def test_operators_that_serve_weights_belong_to_one_layer(exact, tmp_path, bits):
    spent = clocked(tmp_path, all_in(exact, bits), exact)

    found = [spent_on(one, spent) for one in products(exact)]

    kinds = {"Gemm", "FusedGemm", "MatMul", "FusedMatMul"}
    if bits == 8:
        kinds = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul"}
        kinds |= {"MatMulIntegerToFloat"}
    weights = {f"{one.weights.name}{end}" for one in products(exact) for end in ENDS}
    expected = sum(
        one.took_s
        for one in spent
        if not weights.isdisjoint(one.reads) or one.kind == "DynamicQuantizeLinear"
    )
    assert all(one and {*one} <= kinds for one in found)
    assert sum(sum(one.values()) for one in found) == pytest.approx(expected)
