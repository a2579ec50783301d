"""A file that breaks its component's contract is named with the input that it breaks.

Each network is a recipe of one's own whose *exported* copy is wrong, PyTorch's right.
One run takes them all, in both runtimes.
"""

from dataclasses import dataclass

import pytest

pytestmark = pytest.mark.slow

RECIPE = """\
import numpy as np
import torch
from harness.core.case import TensorSpec

INPUTS = ("x", "y", "t")


class Net(torch.nn.Module):
    def __init__(self, exported):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8)
        self.exported = exported

    def forward(self, x, y, t):
        if self.exported:
            {exported}
        else:
            {right}
        return self.linear(x * 2 + torch.tanh(y) * t)


def signature(source, options):
    shape = ("batch", 4, 8)
    inputs = [TensorSpec(name=n, shape=shape, draw="normal") for n in ("x", "y")]
    inputs.append(TensorSpec(name="t", shape=(1,), draw="normal"))
    return tuple(inputs), (TensorSpec(name="out", shape=shape),)


def build(component, attention=""):
    return Net(bool(attention)).eval()


def realistic(component, shapes, step, rng):
    size = (shapes["batch"], 4, 8)
    drawn = {{n: rng.standard_normal(size, dtype=np.float32) for n in ("x", "y")}}
    return {{**drawn, "t": rng.standard_normal(1, dtype=np.float32)}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A network whose exported copy is wrong in one way, and what is to be said."""

    exported: str
    outcome: str
    facts: tuple[str, ...]
    right: str = "pass"
    settings: str = ""


TORCHSCRIPT = 'exporter = "torchscript"\nopset = 17\n'
NETS = {
    "folded": Net(
        exported="t = t * 0 + 0.5",
        outcome="dead-input",
        facts=("input 't' has no effect", "the reference's outputs move by"),
    ),
    "one_tensor_twice": Net(
        exported="y = x",
        outcome="dead-input",
        facts=("input 'y' has no effect", "folded into a constant at export"),
    ),
    "swapped": Net(
        exported="x, y = y, x",
        outcome="exchanged",
        facts=("inputs 'x' and 'y' are exchanged",),
    ),
    "random_file": Net(
        exported="x = x + torch.randn_like(x)",
        outcome="unsteady",
        facts=("asked again with the same inputs", "differs by up to"),
    ),
    "baked": Net(
        exported="x = x.reshape(2, 4, 8)",
        settings=TORCHSCRIPT,
        outcome="export",
        facts=("axis 0 of output", "is fixed at 2", "'batch'", "dynamic_axes"),
    ),
    "made_a_number": Net(
        exported="t = float(t)",
        right="t = float(t)",
        settings=TORCHSCRIPT,
        outcome="export",
        facts=("'t' was folded into a constant", ".item()", "other exporter"),
    ),
}
ONLY_ONNX = ("random_file", "made_a_number", "one_tensor_twice")
"""MNN lays the first out otherwise, and its converter does not take the others."""


@pytest.fixture(scope="module")
def run(new_project):
    project = new_project()
    more = ""
    for name, net in NETS.items():
        text = RECIPE.format(exported=net.exported, right=net.right)
        settings = f'{net.settings}attention = "eager"'
        more += project.write_recipe(name, text, settings)
    project.write(*NETS, shapes="batch = 2\n[[shapes]]\nbatch = 3", more=more)
    suite = project.folder / "parity.toml"
    suite.write_text(
        suite.read_text(encoding="utf-8").replace("realistic = 1", "realistic = 2"),
        encoding="utf-8",
    )
    return project, project.run()


CASES = [
    (name, backend)
    for name in NETS
    for backend in ("onnxruntime", "mnn")
    if backend == "onnxruntime" or name not in ONLY_ONNX
]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_a_broken_promise_is_named_with_its_input(run, name, backend):
    project, _ = run
    check = f"{name}/{backend}/fp32/outputs"

    assert project.outcomes()[check] == NETS[name].outcome
    reason = project.reason(check)
    assert [fact for fact in NETS[name].facts if fact not in reason] == []


def test_the_converter_drops_what_the_exported_graph_ignores_and_it_is_said(run):
    project, _ = run
    check = "one_tensor_twice/mnn/fp32/outputs"

    assert project.outcomes()[check] == "convert"
    assert "In the exported graph no output depends on y" in project.reason(check)


def test_it_is_on_the_screen_too(run):
    _, ended = run

    assert ended.code == 1
    assert ended.sentence("input 't' has no effect", "folded into a constant")
