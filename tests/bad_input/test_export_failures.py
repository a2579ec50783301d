"""A network that cannot be exported, be a reference or run is named with its reason.

The networks are recipes of one's own, written beside the suite; one run takes them all.
"""

import textwrap
from dataclasses import dataclass

import pytest

pytestmark = pytest.mark.slow

RECIPE = """\
import numpy as np
import torch
from harness.core.case import TensorSpec


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x{also}):
{forward}


def signature(source, options):
    shape = ("batch", 8, 8)
    inputs = [TensorSpec(name=n, shape=shape, draw="normal") for n in {inputs}]
    outputs = [TensorSpec(name=n, shape=shape) for n in {outputs}]
    return tuple(inputs), tuple(outputs)


def build(component, attention=""):
    return {build}


def realistic(component, shapes, step, rng):
    size = (shapes["batch"], 8, 8)
    return {{n: rng.standard_normal(size, dtype=np.float32) for n in {inputs}}}


@torch.library.custom_op("mine::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A network that is wrong in one way, and what is to be said about it."""

    forward: str
    outcome: str
    facts: tuple[str, ...]
    build: str = "Net().eval()"
    inputs: tuple[str, ...] = ("x",)
    outputs: tuple[str, ...] = ("y",)
    settings: str = ""


NETS = {
    "eigenvalues": Net(
        forward="return torch.linalg.eigvals(self.linear(x)).abs().unsqueeze(1) + x",
        outcome="export",
        facts=("dynamo", "aten.linalg_eig", "eigenvalues_net.py:13", "torchscript"),
    ),
    "custom_operator": Net(
        forward="return torch.ops.mine.doubled(self.linear(x))",
        outcome="export",
        facts=("mine.doubled", "custom_operator_net.py:13"),
    ),
    "branches_on_numbers": Net(
        forward="return self.linear(x) if x.sum() > 0 else x",
        outcome="export",
        facts=("branches_on_numbers_net.py:13", "data"),
    ),
    "raises": Net(
        forward='raise ValueError("only squares, please")',
        outcome="reference",
        facts=("only squares, please", "raises_net.py:13"),
    ),
    "does_not_fit": Net(
        forward="return torch.linalg.eigvals(self.linear(x)).abs() + x",
        outcome="reference",
        facts=("does_not_fit_net.py:13",),
    ),
    "lacks_a_kernel": Net(
        forward="return torch.special.erf(self.linear(x).double()).float()",
        outcome="load",
        facts=(
            "no kernel for Erf of float64",
            "(aten.special_erf.default, ",
            "lacks_a_kernel_net.py:13), one place",
            "compute that line in float32, or rewrite it",
        ),
    ),
    "unused_input_by_torchscript": Net(
        forward="return self.linear(x)",
        inputs=("x", "mask"),
        outcome="export",
        settings='exporter = "torchscript"\nopset = 17',
        facts=("['x']", "['x', 'mask']"),
    ),
    "one_output_too_few": Net(
        forward="return self.linear(x)",
        outputs=("y", "z"),
        outcome="reference",
        facts=("returns 1", "promises 2"),
    ),
    "cannot_be_built": Net(
        forward="return x",
        build='Net().load_state_dict(torch.load("/nowhere/weights.pt"))',
        outcome="export",
        facts=("/nowhere/weights.pt",),
    ),
    "changes_its_input": Net(
        forward="x += 1\nreturn self.linear(x)",
        outcome="reference",
        facts=("input 'x' in place",),
    ),
    "random": Net(
        forward="return self.linear(x) + torch.rand_like(x)",
        outcome="reference",
        facts=("is random", "'y'"),
    ),
    "in_train_mode": Net(
        forward="return self.linear(x)",
        build="Net()",
        outcome="reference",
        facts=("in train mode", ".eval()"),
    ),
}
MEASURED = {
    "constant": Net(
        forward="return torch.zeros_like(x) * self.linear(x)",
        outcome="constant",
        facts=("one value everywhere",),
    ),
    "not_a_number": Net(
        forward="return torch.sqrt(self.linear(x) - 5)",
        outcome="nonfinite",
        facts=("nonfinite", "are not finite", "in the reference"),
    ),
}


def run_of(project, nets):
    """Write a recipe for each network, and run a suite that has them all."""
    more = ""
    for name, net in nets.items():
        text = RECIPE.format(
            forward=textwrap.indent(net.forward, " " * 8),
            also="".join(f", {name}" for name in net.inputs[1:]),
            inputs=list(net.inputs),
            outputs=list(net.outputs),
            build=net.build,
        )
        more += project.write_recipe(name, text, net.settings)
    project.write(
        *nets, shapes="batch = 2", backends="[backend.onnxruntime]", more=more
    )
    return project, project.run()


@pytest.fixture(scope="module")
def refused(new_project):
    return run_of(new_project(), NETS)


def test_networks_that_cannot_be_exported_end_in_could_not_tell(refused):
    project, ended = refused
    assert ended.code == 2
    assert {check.partition("/")[0] for check in project.outcomes()} == set(NETS)


@pytest.mark.parametrize("name", NETS)
def test_why_a_network_cannot_be_exported_is_one_sentence(refused, name):
    project, _ = refused
    check = f"{name}/onnxruntime/fp32/outputs"
    assert project.outcomes()[check] == NETS[name].outcome
    reason = project.reason(check)
    assert reason.startswith((name, "onnxruntime"))  # the runtime names its file
    assert [fact for fact in NETS[name].facts if fact not in reason] == []


@pytest.fixture(scope="module")
def meaningless(new_project):
    return run_of(new_project(), MEASURED)


def test_outputs_that_say_nothing_are_no_parity(meaningless):
    assert meaningless[1].code == 1


@pytest.mark.parametrize("name", MEASURED)
def test_why_outputs_say_nothing_is_one_sentence(meaningless, name):
    project, ended = meaningless
    outcome = project.outcomes()[f"{name}/onnxruntime/fp32/outputs"]
    assert outcome == MEASURED[name].outcome
    assert ended.sentence(*MEASURED[name].facts)
