"""An operator that an exporter took for nothing is found; one that was fused is not."""

import onnx
import pytest
import torch
from torch import nn
from torch.nn.functional import relu6

from harness.core.probes import load_probes
from harness.engine.export_files import MODEL, PROBES
from harness.plugins.weights.attributes import differing_attributes
from harness.plugins.weights.check import check_graph
from harness.plugins.weights.removed import removed_operators
from tests.unit import nets

ROWS = nets.component("rows", {"x": ("batch", 8)})


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.conv, self.norm = nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.function(self, x.sin()).cos()


def found(function, folder, **settings):
    nets.export(Net(function).eval(), ROWS, folder, **settings)
    graph = onnx.load(folder / MODEL).graph
    removed = removed_operators(load_probes(folder / PROBES), graph)
    return [(one.words, one.reader.name) for one in removed]


GUARDED = lambda _, x: x.relu() / (x.relu() + 1e-15)  # noqa: E731  # as those below


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param(GUARDED, ("add (other = 1e-15)", "div"), id="added"),
        pytest.param(
            lambda _, x: (x.exp() - 1e-9).log(),
            ("sub (other = 1e-09)", "log"),
            id="sub",
        ),
        pytest.param(
            lambda _, x: x / (1 + 1e-9), ("div (other = 1.000000001)", "cos"), id="div"
        ),
    ],
)
def test_an_operator_that_was_taken_for_nothing_is_found(tmp_path, function, words):
    assert found(function, tmp_path) == [words]


def test_two_in_a_row_are_both_found(tmp_path):
    both = found(lambda _, x: (x.exp() + 1e-9 - 2e-9).log(), tmp_path)
    assert [words for words, _ in both] == [
        "sub (other = 2e-09)",
        "add (other = 1e-09)",
    ]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda _, x: x.relu().relu() + 1, id="one-relu-of-two"),
        pytest.param(lambda _, x: x.clamp(-1, 1).clamp(0, 2), id="one-clip-of-two"),
        pytest.param(lambda _, x: relu6(x.relu()), id="clip-of-relu"),
        pytest.param(
            lambda net, x: net.norm(net.conv(x[:, None] * 2)).flatten(1), id="folded"
        ),
        pytest.param(lambda net, x: net.linear(x) + net.linear(x.clone()), id="merged"),
        pytest.param(lambda _, x: x.double().float() + 0 * x, id="cast-back"),
        pytest.param(lambda _, x: x.T.T * 1 / 1.0, id="identities"),
    ],
)
def test_an_operator_that_was_fused_merged_or_is_an_identity_is_not(tmp_path, function):
    assert found(function, tmp_path) == []


@pytest.mark.parametrize(
    "settings", [{"optimize": False}, {"exporter": "torchscript", "opset": 17}]
)
def test_without_that_optimiser_nothing_is_left_out(tmp_path, settings):
    assert found(GUARDED, tmp_path, **settings) == []


def test_the_check_of_a_graph_and_of_its_operators_name_it(tmp_path):
    module = Net(GUARDED).eval()
    nets.export(module, ROWS, tmp_path)
    probes = load_probes(tmp_path / PROBES)

    (removed,) = check_graph(module, probes, tmp_path / MODEL)["removed"]
    assert (removed["words"], removed["reader"]) == ("add (other = 1e-15)", "div")
    assert differing_attributes(probes, tmp_path / MODEL) == {
        "div": "the exporter left out add (other = 1e-15) in front of it"
    }
    assert torch.isfinite(module(torch.ones(1, 8))).all()
