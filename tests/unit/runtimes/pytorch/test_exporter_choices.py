"""An export without the exporter's optimiser, and one with transformers' patches."""

import sys

import numpy as np
import onnx
import pytest
import torch
import transformers
from torch import nn

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL
from tests.unit import nets

ROWS = nets.component("rows", {"x": ("batch", 8)})
TINY = 1e-15


class Guarded(nn.Module):
    """A division that a tiny number guards, as in Sana's linear attention."""

    def forward(self, x):
        positive = x.relu()
        return positive / (positive + TINY)


class Model(transformers.PreTrainedModel):
    """A model of transformers with a rotation that PyTorch does not translate."""

    config_class = transformers.PretrainedConfig

    def __init__(self):
        super().__init__(transformers.PretrainedConfig())
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        pairs = torch.view_as_complex(self.linear(x).unflatten(1, (4, 2)))
        turned = pairs.unsqueeze(1) * torch.polar(torch.ones(4), torch.ones(4))
        return torch.view_as_real(turned).flatten(1)


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = Model()

    def forward(self, x):
        return self.network(x)


def run(folder, rows):
    return nets.by_onnxruntime(folder / MODEL, {"x": rows}, optimised=False)["out"]


@pytest.mark.parametrize("optimize", [True, False])
def test_the_exporter_optimises_unless_told_otherwise(tmp_path, optimize):
    module, rows = Guarded().eval(), np.linspace(-1, 1, 24, dtype=np.float32)
    nets.export(module, ROWS, tmp_path, optimize=optimize)
    made = run(tmp_path, rows.reshape(3, 8))

    # The optimiser takes 1e-15 for 0, and 0 / 0 is no number.
    assert np.isnan(made).any() == optimize
    if not optimize:
        expected = module(torch.tensor(rows.reshape(3, 8))).numpy()
        np.testing.assert_array_equal(made, expected)


def test_the_patches_of_transformers_export_what_dynamo_refuses(tmp_path):
    module = Wrapped().eval().requires_grad_(requires_grad=False)
    for folder in (tmp_path / "dynamo", tmp_path / "patched"):
        folder.mkdir()
    with pytest.raises(StageError, match="unsqueeze"):
        nets.export(module, ROWS, tmp_path / "dynamo")
    exported = nets.export(module, ROWS, tmp_path / "patched", "transformers")

    graph = onnx.load(tmp_path / "patched" / MODEL).graph
    assert [value.name for value in graph.input] == ["x"]
    assert {probe.module for probe in exported.probes} >= {"linear"}
    for rows in np.random.default_rng(0).standard_normal((2, 5, 8), np.float32):
        expected = module(torch.tensor(rows)).numpy()
        np.testing.assert_allclose(run(tmp_path / "patched", rows), expected, 1e-5)


def test_the_patches_are_gone_after_an_export(tmp_path):
    before = torch.where, torch.exp, nn.functional.scaled_dot_product_attention
    nets.export(Wrapped().eval(), ROWS, tmp_path, "transformers")
    assert before == (
        torch.where,
        torch.exp,
        nn.functional.scaled_dot_product_attention,
    )


def test_transformers_exports_none_but_its_own_models(tmp_path):
    with pytest.raises(StageError) as caught:
        nets.export(Guarded().eval(), ROWS, tmp_path, "transformers")
    assert caught.value.outcome is Outcome.EXPORT
    assert str(caught.value) == (
        "rows cannot be exported by the transformers exporter: Guarded is no model of "
        'transformers, and has none inside. Take exporter = "dynamo".'
    )


def test_an_older_transformers_has_no_exporters(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.exporters", None)
    with pytest.raises(StageError, match=r"needs transformers 5\.13 or newer, and 5\."):
        nets.export(Wrapped().eval(), ROWS, tmp_path, "transformers")
