"""Sizes that the harness adds and the reference refuses are left out, and said."""

import pytest

from harness.core.outcome import Outcome
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.suite.suite import load_suite

pytestmark = pytest.mark.slow

RECIPE = """
from harness.core.case import TensorSpec
from harness.recipes.types import normal


def signature(source, options):
    specs = (normal("x", "batch", "tokens", 8),)
    return specs, (TensorSpec(name="y", shape=("batch", "tokens", 8)),)


def build(component, attention=""):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.table = torch.nn.Linear(8, 8), torch.nn.Embedding(21, 8)

        def forward(self, x):
            {forward}
            return self.a(x) + self.table.weight[: x.shape[1]]

    torch.manual_seed(0)
    return Net().eval()


def realistic(component, shapes, step, rng):
    {draw}
    return {{
        "x": rng.standard_normal(component.inputs[0].bind(shapes), dtype="float32")
    }}
"""
SUITE = """
components = ["net"]
[source]
checkpoint = "."
[export]
exporter = "torchscript"
opset = 17
dynamic_axes = ["batch", "tokens"]
[[shapes]]
batch = 2
tokens = {tokens}
[inputs]
profiles = ["realistic"]
realistic = 1
[component.net]
recipe = "{recipe}"
[backend.onnxruntime]
variants = ["fp32"]
"""
WAYS = {
    "the_table_ends": ("", ""),
    "forward_asserts": ("assert x.shape[1] <= 21, 'at most 21 tokens'", ""),
    "the_draw_refuses": ("", "assert shapes['tokens'] <= 21, 'at most 21 tokens'"),
}


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Runs the case of a network that takes at most 21 tokens."""

    def run(way, tokens):
        forward, draw = WAYS[way]
        (tmp_path / "config.json").write_text("{}")
        text = RECIPE.format(forward=forward or "pass", draw=draw or "pass")
        name = f"{way}_{tokens}"
        (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "parity.toml").write_text(SUITE.format(tokens=tokens, recipe=name))
        monkeypatch.syspath_prepend(tmp_path)
        suite = load_suite(tmp_path / "parity.toml")
        with Engine(Store(root=tmp_path / ".store"), suite.limits) as engine:
            return engine.run(suite.cases[0])

    return run


@pytest.mark.parametrize("way", WAYS)
def test_a_larger_size_that_pytorch_refuses_is_left_out_and_said(way, recorded):
    record = recorded(way, 20)
    assert record.failure is None
    assert {row.sample for row in record.rows if "tokens21" in row.sample} == set()
    assert any("tokens40" in one for one in record.refused)
    assert not any("tokens40" in row.sample for row in record.rows)
    assert "tokens above 20" in record.refused


NO_REFERENCE = {
    "wrong_shapes": ("x = x @ torch.zeros(9, 9)", "PyTorch itself cannot run with"),
    "asserts": ("assert x.shape[0] == 99, 'only 99'", "only 99"),
    "random": ("return self.a(torch.normal(0.0, 1.0, size=(2, 20, 8)))", "is random"),
}


@pytest.mark.parametrize("way", NO_REFERENCE)
def test_what_is_no_reference_is_no_fault_of_an_exporter(way, recorded, monkeypatch):
    line, said = NO_REFERENCE[way]
    monkeypatch.setitem(WAYS, way, (line, ""))
    record = recorded(way, 20)
    assert record.failure is not None
    assert record.failure.outcome is Outcome.REFERENCE
    assert said in record.failure.message
    assert "exporter" not in record.failure.message
