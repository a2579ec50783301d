"""The memory of foreign files is forecast from their sizes."""

import numpy as np
import onnx
import pytest

from harness.core.outcome import Outcome
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.plugins.foreign.files.beside import weight_bytes
from harness.suite.forecast import file_weights, stored_weights
from harness.suite.schema import Limits
from harness.suite.suite import load_suite
from tests.places import EXPORTED


def half(folder, *, external):
    """Return a file of 5000 numbers in 16 bits and 3000 in 32."""
    helper = onnx.helper
    weights = [np.ones(5000, np.float16), np.ones(3000, np.float32)]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "half",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])],
        [onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    path = folder / "half.onnx"
    onnx.save_model(
        helper.make_model(graph),
        path,
        save_as_external_data=external,
        location="half.bin",
        size_threshold=0,
    )
    return path


def one_case(folder, *, external):
    half(folder, external=external)
    (folder / "parity.toml").write_text(
        '[[shapes]]\nn = 2\n[inputs]\nprofiles = ["realistic"]\n'
        '[backend.onnxruntime]\n[component.half]\nonnx = "half.onnx"\n'
    )
    (case,) = load_suite(folder).cases
    return case


@pytest.mark.parametrize("external", [False, True], ids=["within", "beside"])
def test_a_file_without_pytorch_is_counted_as_it_is_loaded(tmp_path, external):
    case = one_case(tmp_path, external=external)

    assert stored_weights(case.component) is None
    assert file_weights(case.component) == pytest.approx(4 * 8000, rel=0.05)


def test_an_mnn_file_is_counted_with_the_weights_beside_it():
    path = EXPORTED / "mnn_scripts" / "unet.mnn"

    assert weight_bytes("mnn", path) == 116_784 + 206_608


def test_a_file_without_pytorch_that_cannot_fit_is_refused_before_it_is_loaded(
    tmp_path,
):
    case = one_case(tmp_path, external=True)

    with Engine(Store(root=tmp_path / "store"), Limits(memory_gib=0.1)) as engine:
        record = engine.run(case)

    assert record.failure is not None
    assert record.failure.outcome is Outcome.MEMORY
    assert record.failure.message.startswith("running half in ONNX Runtime is forecast")
