"""`harness.runtimes.mnn.file`: the file's own names identify fused operators."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from harness.core.case import Device
from harness.measure.align import source_value
from harness.runtimes.mnn import RUNTIME
from harness.runtimes.mnn.file import (
    Operator,
    lacking_mnn,
    operators,
    values_in,
    values_made,
)
from tests.places import EXPORTED
from tests.unit import nets

SCRIPTS = EXPORTED / "mnn_scripts"
PART = nets.component("net", {"image": ("batch", 4, 6, 6)})
NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 4, 6, 6] image) => (float[N, 6, 6, 4] out)
<float[4, 4, 3, 3] kernel, float[4, 4] weight, float[4] bias>
{
    conv = Conv <pads = [1, 1, 1, 1]> (image, kernel)
    rectified = Relu (conv)
    sum = Add (rectified, image)
    rectified_sum = Relu (sum)
    plain = Conv <pads = [1, 1, 1, 1]> (rectified_sum, kernel)
    tokens = Transpose <perm = [0, 2, 3, 1]> (plain)
    product = MatMul (tokens, weight)
    linear = Add (product, bias)
    rectified_linear = Relu (linear)
    product_2 = MatMul (rectified_linear, weight)
    linear_2 = Add (product_2, bias)
    gate = Sigmoid (linear_2)
    silu = Mul (linear_2, gate)
    product_3 = MatMul (silu, weight)
    size = Abs (product_3)
    root = Sqrt (size)
    out = Add (root, tokens)
}
"""
NAMED = (
    *("conv", "rectified", "sum", "rectified_sum", "plain"),
    *("linear", "rectified_linear", "linear_2", "silu"),
    *("product_3", "size", "root"),
)

FLAGS = {kind: built_in.flags for kind, built_in in RUNTIME.variants.items()}


def net():
    model = onnx.parser.parse_model(NET)
    random = np.random.default_rng(0)
    for name, shape in (("kernel", (4, 4, 3, 3)), ("weight", (4, 4)), ("bias", (4,))):
        value = (0.2 * random.normal(size=shape)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


def convert(folder):
    onnx.save(net(), folder / "model.onnx")
    return nets.to_mnn(folder / "model.onnx", folder, PART)


def watch(path, image):
    from harness.runtimes.mnn import session as mnn

    seen = nets.Seen()
    device = Device(threads=1)
    with mnn.open_session(path, device, ["out"]) as session:
        session.watch({"image": image}, dict.fromkeys(NAMED, 0), seen.keep)
        isolated: dict[str, np.ndarray] = {}
        right = expected(image)
        given = {
            name: right[name] if name in right else same_values(right, name, value)
            for name, value in seen.items()
        }
        session.isolate({"image": image}, given, isolated.__setitem__)
    return seen, isolated


def same_values(right, name, value):
    return right[source_value(name)].reshape(value.shape)


def expected(image):
    """Return every value, as the definitions of ONNX's operators have it."""
    model = net()
    for name in NAMED:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    names = [value.name for value in model.graph.output]
    reference = ReferenceEvaluator(model)
    return dict(zip(names, reference.run(names, {"image": image}), strict=True))


@pytest.fixture(scope="module")
def file(tmp_path_factory, job):
    return job(convert, tmp_path_factory.mktemp("net"))


def test_an_operator_that_also_rectifies_is_known_by_what_it_makes(file):
    made = values_made(operators(file))
    assert made["conv"] == "rectified"
    assert made["sum"] == "rectified_sum"
    assert made["linear__matmul_converted"] == "rectified_linear"


def test_a_value_that_is_computed_inside_another_operator_is_not_in_the_file(file):
    found = {source_value(name) for name in values_in(file)}
    assert {"rectified", "rectified_sum", "rectified_linear", "silu"} <= found
    assert not {"conv", "sum"} & found


@pytest.mark.parametrize("name", ["silu", "size", "root"])
def test_an_operator_moved_before_a_change_of_layout_keeps_its_name(file, name):
    found = {one.name: one for one in operators(file)}
    assert found[name].makes != (name,)
    assert name not in values_made(found.values())


def test_every_value_seen_is_the_one_of_that_name(file, job):
    image = np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float32)
    wanted = expected(image)

    seen, isolated = job(watch, file, image)

    assert set(seen) == {
        *("rectified", "rectified_sum", "plain", "rectified_linear"),
        *("linear_2__matmul_converted", "silu"),
        *("product_3__matmul_converted", "size", "root"),
    }
    for name, value in {**seen, **isolated}.items():
        same = wanted[source_value(name)]
        np.testing.assert_allclose(value.reshape(same.shape), same, atol=1e-5)
    assert isolated


def test_the_file_is_read_as_mnn_reads_it(file, tmp_path):
    program = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
    written = tmp_path / "model.json"
    arguments = ["-f", "MNN", "--modelFile", str(file), "--JsonFile", str(written)]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    said = json.loads(written.read_text(encoding="utf-8"))
    names = said["tensorName"]

    assert operators(file) == [
        Operator(
            name=one["name"],
            reads=tuple(names[place] for place in one.get("inputIndexes", [])),
            makes=tuple(names[place] for place in one["outputIndexes"]),
        )
        for one in said["oplists"]
    ]


@pytest.mark.parametrize("text", [b"", b"no flatbuffer at all", b"\x04\0\0\0"])
def test_what_is_no_such_file_is_said(tmp_path, text):
    path = tmp_path / "model.mnn"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"model\.mnn cannot be read as an \.mnn file"):
        operators(path)


@pytest.mark.parametrize("kind", FLAGS)
def test_weights_beside_a_file_end_where_it_says(kind, tmp_path):
    source = SCRIPTS / "vae_encoder" / "model.onnx"
    path, beside = tmp_path / "model.mnn", tmp_path / "model.mnn.weight"
    program = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
    arguments = ["-f", "ONNX", "--modelFile", source, "--MNNModel", path]
    arguments += ["--bizCode", "test", "--saveExternalData=1", *FLAGS[kind]]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    subprocess.run(command, check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)

    assert lacking_mnn(path, beside) == ""
    size = beside.stat().st_size
    beside.write_bytes(beside.read_bytes()[:-1])
    assert f"byte {size:,}, and that file has" in lacking_mnn(path, beside)
    beside.unlink()
    assert "that file is not there" in lacking_mnn(path, beside)
