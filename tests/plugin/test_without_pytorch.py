"""A file alone has no PyTorch and no noise floors, and nothing names them."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.plugin.project import called

RESIZE = """<ir_version: 8, opset_import: ["": 17]>
net (float[batch, 4, 10, 10] image) => (float[batch, 4, 20, 20] resized)
<float[4, 4, 1, 1] kernel, float[4] scales = {1.0, 1.0, 2.0, 2.0}> {
  features = Conv(image, kernel)
  resized = Resize<mode = "cubic", coordinate_transformation_mode = "half_pixel">
            (features, , scales)
}"""
SUITE = """\
shapes = [{ batch = 2 }]
inputs = { profiles = ["realistic"], realistic = 1 }
backend.mnn.variants = ["fp32"]
component.net.onnx = "net.onnx"
"""
CASE = "net/mnn/fp32"
TRUE = re.compile(r"without\s+PyTorch|and no PyTorch|no\s+noise floor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, store):  # noqa: ARG001  # whose place commands use
    """Run a file that MNN resizes otherwise, and make all that is made of a run."""
    folder = tmp_path_factory.mktemp("alone")
    model = parser.parse_model(RESIZE)
    kernel = np.random.default_rng(0).normal(size=(4, 4, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "kernel"))
    onnx.save(model, folder / "net.onnx")
    (folder / "parity.toml").write_text(SUITE)
    bounds = 'outputs = "standard"\nlayers = { sqnr_db = 80.0 }\nwhy = "x"\n'
    (folder / "tolerances.toml").write_text(f"[mnn.fp32]\n{bounds}")
    called(folder, "run").check(1)
    screen = called(folder, "repro", CASE, "--out", "own").check(0)
    (folder / "screen.txt").write_text(screen.text)
    called(folder, "repro", CASE, "--post", "--out", "post").check(0)
    called(folder, "card").check(0)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        *("screen.txt", "own/repro.json", "post/repro.json", "post/issue.md"),
        *("card/card.md", "reports/runs/*/report.html", "reports/runs/*/summary.md"),
    ],
)
def test_neither_is_named(folder, name):
    (file,) = folder.glob(name)
    text = file.read_text(encoding="utf-8")
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search("PyTorch|noise floor", TRUE.sub("", text))


def test_the_title_of_a_script_names_the_reference(folder):
    told = json.loads((folder / "own" / "repro.json").read_text())
    assert told["title"] == f"{CASE} diverges from the reference at resized (Resize)"
    assert told["answer"] == "the reference's float32 answer"
