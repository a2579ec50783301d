"""A patch of the exported copy may move outputs as far as rounding, and no further."""

import copy
from pathlib import Path

import pytest
import torch

from harness.core.case import Component, ExportSettings, Source, TensorSpec
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.runtimes.pytorch.patch import judged_patch, patched

SPEC = TensorSpec(name="y", shape=(4,))
COMPONENT = Component(
    name="net",
    recipe="mine",
    source=Source(path=Path()),
    inputs=(TensorSpec(name="x", shape=(4,), draw="normal"),),
    outputs=(SPEC,),
)
X = torch.linspace(0.5, 2.0, 4)


def moved(by, floor=1e-7):
    return judged_patch(COMPONENT, "p:f", [X], [X + by], {"output:y": floor})


def test_a_patch_that_moves_an_output_by_rounding_is_measured_in_floors():
    assert moved(2e-7) == pytest.approx(2.0, rel=0.5)


@pytest.mark.parametrize("by", [1e-5, 0.5, float("nan")])
def test_a_patch_that_moves_an_output_further_is_refused(by):
    with pytest.raises(StageError, match="before any exporter has run") as caught:
        moved(by)

    assert caught.value.outcome is Outcome.PATCH


def test_a_patch_that_changes_a_shape_is_refused():
    with pytest.raises(StageError, match=r"shape of output 'y' from \[4\] to \[2\]"):
        judged_patch(COMPONENT, "p:f", [X], [X[:2]], {})


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x):
        return self.linear(x) * self.scale


def doubled(network):
    network.linear.weight.data.mul_(2.0)


def other_scale(network):
    network.scale = 3.0


def nothing(network):
    pass


def not_a_module(network):
    return network.scale


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (doubled, "changes the weight linear.weight"),
        (nothing, "changes nothing of the network"),
        (not_a_module, "returns a float"),
        (None, "failed: AttributeError"),
    ],
)
def test_a_patch_that_is_none_is_refused(patch, words, monkeypatch):
    with pytest.raises(StageError, match=words):
        apply(patch, monkeypatch)


def test_a_patch_changes_the_copy_alone(monkeypatch):
    module, copied = apply(other_scale, monkeypatch)

    assert (module.scale, copied.scale) == (2.0, 3.0)


def apply(patch, monkeypatch):
    """Apply a patch of this module to the copy of a network; return both."""
    monkeypatch.setattr("harness.runtimes.pytorch.patch._resolved", lambda _: patch)
    if patch is None:
        monkeypatch.undo()
    module = Net().eval()
    settings = ExportSettings(patch="harness.core.case:no_such_function")
    return module, patched(settings, COMPONENT, module, copy.deepcopy(module), (X,))
