"""Files rewritten by exact algebra, which needs no tool: silent unless one is wrong."""

import onnx
import pytest

from tests.exporters.algebra import rewrite
from tests.exporters.rewritten import Rewritten, saved
from tests.faults.catalogue import FAULTS

pytestmark = pytest.mark.slow

ANOTHER = ("bias-moved", "factor-into-q-weights", "transposes-pushed", "norms-folded")
WRONG = ("linear-bias-dropped", "attention-scale-of-the-width", "mask-too-weak")


@pytest.fixture(scope="module")
def text_encoder(trials):
    return Rewritten(trials.stand, "text_encoder")


@pytest.mark.parametrize("name", [*ANOTHER, "names-stripped"])
def test_a_rewritten_file_is_silent(text_encoder, tmp_path, name):
    model = onnx.load(text_encoder.original)
    assert rewrite(model, name)
    trial, by = text_encoder.run(saved(model, tmp_path / "a.onnx"), "onnxruntime")
    layers, outputs = trial.verdicts

    assert layers.outcome.passed, layers.reason
    assert outputs.outcome.passed, outputs.reason
    assert by == ("weights" if name == "names-stripped" else "names")
    assert ("agrees" in layers.reason) == (name in ANOTHER)


@pytest.mark.parametrize(
    ("name", "rewritten"), [(name, one) for name in WRONG for one in ANOTHER[:2]]
)
def test_a_fault_in_a_rewritten_file_is_caught(text_encoder, tmp_path, name, rewritten):
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    model = onnx.load(text_encoder.original)
    fault.plant.change(model)
    assert rewrite(model, rewritten)
    trial, _ = text_encoder.run(saved(model, tmp_path / "a.onnx"), "onnxruntime")

    assert trial.caught
