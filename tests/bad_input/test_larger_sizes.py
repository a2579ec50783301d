"""A file that is right up to the size it was traced at, and wrong above it.

PyTorch's module has a branch on a size, as real ones have for long texts and large
pictures; tracing takes the side of the example and keeps no branch.
"""

import pytest

pytestmark = pytest.mark.slow

RECIPE = """\
import numpy as np
import torch
from harness.core.case import TensorSpec

SHAPE = ("batch", 4, "height", "width")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        if x.shape[{axis}] > {above}:
            x = 0.5 * x
        return self.conv(x)


def signature(source, options):
    one = TensorSpec(name="x", shape=SHAPE, draw="normal")
    return (one,), (TensorSpec(name="out", shape=SHAPE),)


def multiples(source, options):
    return {{}}


def build(component, attention=""):
    return Net().eval()


def realistic(component, shapes, step, rng):
    size = (shapes["batch"], 4, shapes["height"], shapes["width"])
    return {{"x": rng.standard_normal(size, dtype=np.float32)}}
"""
NETS = {
    "tall": {"axis": 2, "above": 8},
    "very_tall": {"axis": 2, "above": 12},
    "wide": {"axis": 3, "above": 12},
    "four_items": {"axis": 0, "above": 3},
    "five_items": {"axis": 0, "above": 4},
}
SETTINGS = """\
exporter = "torchscript"
opset = 17
dynamic_axes = ["batch", "height", "width"]
"""


@pytest.fixture(scope="module")
def run(new_project):
    project = new_project()
    more = ""
    for name, branch in NETS.items():
        more += project.write_recipe(name, RECIPE.format(**branch), SETTINGS)
    project.write(*NETS, shapes="batch = 2\nheight = 8\nwidth = 12", more=more)
    return project, project.run()


@pytest.mark.parametrize("backend", ["onnxruntime", "mnn"])
@pytest.mark.parametrize("name", NETS)
def test_a_network_that_is_wrong_above_the_traced_size_alone_fails(run, name, backend):
    project, ended = run
    assert ended.code == 1
    assert project.outcomes()[f"{name}/{backend}/fp32/layers"] == "exceeds"
    assert project.outcomes()[f"{name}/{backend}/fp32/outputs"] == "exceeds"
