"""The command on a foreign model in whose graph a tool has made an input a constant."""

import shutil

import pytest

from tests.places import FIXTURES
from tests.plugin import others
from tests.plugin.project import Project

pytestmark = pytest.mark.slow

FLUX = FIXTURES / "flux"
PAIR = """\
[[shapes]]
batch = 2
height = 8
width = 12
image_tokens = 24           # 4 x 6 squares of two by two latents
text_tokens = 16
tokens = 16

"""
FOLDED = """\

[component.folded]
recipe = "transformer"
onnx = "folded.onnx"
variants = ["given"]
[component.folded.names]
guidance = "scale"
"""
BOUNDS = """\

[onnxruntime.given]
outputs = "strict"
layers = "strict"
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Flux's own graph, and the same, its guidance a constant, as a file of others."""
    folder = tmp_path_factory.mktemp("cut")
    project, store = Project(folder / "flux"), folder / "store"
    shutil.copytree(FLUX, project.path)
    # The constant is one item's guidance, so that every number agrees.
    project.change("parity.toml", PAIR, "")
    project.change("parity.toml", "[inputs]\n", "[inputs]\nmore_sizes = false\n")
    whole = project.parity("run", "transformer/onnxruntime/fp32", "--store", str(store))
    (graph,) = store.glob("v*/onnx/*/*/model.onnx")
    others.folded(graph, project.path / "folded.onnx", "guidance", "scale", 3.5)
    project.change("parity.toml", 'components = ["t', 'components = ["folded", "t')
    project.add("parity.toml", FOLDED)
    project.add("tolerances.toml", BOUNDS)
    return whole, project.parity("run", "folded/", "--store", str(store))


def test_the_whole_graph_passes_and_every_input_was_changed_alone(ran):
    whole, _ = ran
    assert whole.code == 0, whole.text
    assert "not changed alone" not in whole.text


def test_a_guidance_that_is_a_constant_is_found_though_every_number_agrees(ran):
    _, cut = ran
    assert cut.code == 1, cut.text
    assert "folded/onnxruntime/given" in cut.text
    assert cut.has("input 'guidance' has no effect in the deployed file")
    assert cut.has("it was folded into a constant at export")
