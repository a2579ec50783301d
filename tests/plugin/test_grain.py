"""What a file of modules shows, in a run and in `parity ranges`."""

import importlib.util
import sys
import warnings

import onnx
import pytest
import torch
from onnx import numpy_helper

from tests.plugin.project import Project

pytestmark = pytest.mark.slow

RECIPE = '''\
"""Modules with operators between them."""

import numpy as np
import torch
from torch import nn

from harness.core.case import TensorSpec
from harness.recipes.types import normal


class Norm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Net(nn.Module):
    def __init__(self, kind, wrong):
        super().__init__()
        self.kind, self.wrong = kind, wrong
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.norm = Norm()

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.kind == "softplus":
            v = nn.functional.softplus(v)
        if self.kind == "halves":
            v = torch.cat((v[..., 4:] * 3 + 1, v[..., :4]), -1)
        if self.kind == "large":
            return self.o(self.norm(q * 600))
        if self.wrong:  # as with a buffer of two items
            v = torch.cat((v[:2], v[2:] * 1.5))
        scores = q @ k.transpose(-1, -2) / 8**0.5
        return x + self.o(scores.softmax(-1) @ v)


def net(kind, *, wrong=False):
    torch.manual_seed(0)
    return Net(kind, wrong).eval()


def signature(source, options):
    y = TensorSpec(name="y", shape=("batch", 6, 8))
    return (normal("x", "batch", 6, 8),), (y,)


def build(component, attention=""):
    return net(dict(component.options)["kind"])


def realistic(component, shapes, step, rng):
    shape = component.inputs[0].bind(shapes)
    return {"x": rng.standard_normal(shape, dtype=np.float32)}
'''
HEAD = """\
[source]
checkpoint = "checkpoint"

[export]
exporter = "torchscript"
opset = 17

[[shapes]]
batch = 2

[inputs]
profiles = ["realistic"]
realistic = 1
more_sizes = false

[backend.onnxruntime]
variants = ["fp32"]

[component.large]
recipe = "grain_blocks"
kind = "large"
"""
BOUNDS = """\
[onnxruntime.given]
outputs = "standard"
layers = "standard"

[onnxruntime.fp32]
outputs = "standard"
layers = "standard"
"""


def divided(graph):
    """Make the scores a tenth larger."""
    node = next(node for node in graph.node if node.op_type == "Div")
    held = {
        c.output[0]: c.attribute[0].t for c in graph.node if c.op_type == "Constant"
    }
    tensor = held[node.input[1]]
    other = (numpy_helper.to_array(tensor) / 1.1).astype("float32")
    tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))


def activated(graph):
    next(n for n in graph.node if n.op_type == "Softplus").op_type = "Relu"


def exchanged(graph):
    node = next(node for node in graph.node if node.op_type == "Concat")
    node.input[:] = reversed(node.input)


PLANTED = {
    "scale": ("plain", divided),
    "softplus": ("softplus", activated),
    "halves": ("halves", exchanged),
}


def exported(recipe, kind, path, *, batch=2, wrong=False):
    """Export a network as others do, with TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            recipe.net(kind, wrong=wrong),
            (torch.randn(batch, 6, 8),),
            str(path),
            input_names=["x"],
            output_names=["y"],
            dynamo=False,
            opset_version=17,
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
    return onnx.load(path)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Foreign TorchScript files, each with one wrong operator in front of `o`."""
    folder = tmp_path_factory.mktemp("grain")
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "config.json").write_text("{}")
    path = folder / "grain_blocks.py"
    path.write_text(RECIPE)
    spec = importlib.util.spec_from_file_location("grain_blocks", path)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    parts = []
    for name, (kind, change) in PLANTED.items():
        model = exported(recipe, kind, folder / f"{name}.onnx")
        change(model.graph)
        onnx.save(model, folder / f"{name}.onnx")
        about = f'recipe = "grain_blocks"\nkind = "{kind}"\nonnx = "{name}.onnx"\n'
        parts.append(f"\n[component.{name}]\n{about}")
    exported(recipe, "plain", folder / "third.onnx", batch=4, wrong=True)
    about = 'recipe = "grain_blocks"\nkind = "plain"\nonnx = "third.onnx"\n'
    parts.append(f"\n[component.third]\n{about}")
    names = ", ".join(f'"{name}"' for name in (*PLANTED, "large", "third"))
    text = f"components = [{names}]\n\n{HEAD}{''.join(parts)}"
    (folder / "parity.toml").write_text(text)
    (folder / "tolerances.toml").write_text(BOUNDS)
    yield Project(folder)
    sys.modules.pop("grain_blocks", None)


@pytest.fixture(scope="module")
def ran(project):
    return project.parity("run", *PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_right_module_is_not_blamed_for_what_stands_before_it(ran, name):
    case = f"{name}/onnxruntime/given"
    ran.check(1, f"{case} first diverges between q, k, v (agree) and o (Linear)")
    assert not ran.has("local error"), ran.text
    assert not ran.has("weights"), ran.text


def test_ranges_looks_at_the_values_between_modules_and_in_them(project):
    said = project.parity("ranges", "large")
    said.check(1, "norm (Pow)", "is beyond 65504", "--keep=/norm/Pow_output_0")


def test_an_error_at_added_sizes_alone_has_its_place_and_size(project, tmp_path):
    added = project.branch(tmp_path / "project")
    added.change("parity.toml", "more_sizes = false\n", "")
    ran = added.parity("run", "third")
    ran.check(1, "first diverges between q, k, v (agree) and o (Linear)")
    assert ran.has("only from batch 3 on"), ran.text
