"""`explain` measures on the sample that failed, in the file that failed."""

from dataclasses import replace

import pytest

from harness.core.groups import sample_groups
from harness.core.record import OUTPUTS
from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.plugins.explain.excerpts import narrowed
from harness.plugins.explain.explain import explain
from harness.plugins.explain.screen import explanation_lines
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.plugins.explain.test_screen import PHONE, explanation

(CASE,) = (c for c in load_suite(DIGITS).cases if c.id == "unet/onnxruntime/fp32")


@pytest.mark.parametrize("sample", CASE.samples, ids=lambda sample: sample.id)
@pytest.mark.parametrize("dynamic", [CASE.export.dynamic, ()], ids=["open", "fixed"])
def test_a_narrowed_case_keeps_the_graph_of_its_sample(sample, dynamic):
    case = replace(CASE, export=replace(CASE.export, dynamic=dynamic))
    graphs = {s: g.shapes for g in sample_groups(case, case.samples) for s in g.samples}
    one = narrowed(case, sample)
    (group,) = sample_groups(one, one.samples)
    assert group.shapes == graphs[sample]
    assert len(one.samples) <= 2


@pytest.mark.parametrize("again", [{"agrees": True}, {"failure": "it ended"}])
def test_nothing_is_proposed_where_it_does_not_fail_again(tmp_path, again):
    found = explanation(tmp_path, "target", target=PHONE)
    before = replace(found.before, floors=1.1, **again)

    said = [
        line.text.strip()
        for line in explanation_lines(
            replace(found, before=before, trials=(), stage="")
        )
    ]

    assert any("measured again as it is" in line for line in said)
    assert any("nothing is proposed" in line for line in said)
    assert not any("or by" in line or "parity.toml" in line for line in said)


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
            self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            h = self.a(x)
            return self.b(h if x.shape[1] <= 12 else h - h.mean(1, keepdim=True))

    torch.manual_seed(0)
    return Net().eval()


def realistic(component, shapes, step, rng):
    return {"x": rng.standard_normal(component.inputs[0].bind(shapes), dtype="float32")}
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
tokens = 10
[[shapes]]
batch = 1
tokens = 20
[inputs]
profiles = ["realistic"]
realistic = 2
more_sizes = false
[component.net]
recipe = "branches_on_the_length"
[backend.onnxruntime]
variants = ["fp32"]
"""
TOLERANCES = '[onnxruntime.fp32]\noutputs = "standard"\nlayers = "standard"\n'


@pytest.mark.slow  # 30 settings are tried
def test_no_setting_fixes_a_branch_that_the_export_froze(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "branches_on_the_length.py").write_text(RECIPE)
    (tmp_path / "parity.toml").write_text(SUITE)
    (tmp_path / "tolerances.toml").write_text(TOLERANCES)
    monkeypatch.syspath_prepend(tmp_path)
    suite = load_suite(tmp_path / "parity.toml")
    judge = Judge.of(suite, Settings())

    with Engine(Store(root=tmp_path / ".store"), suite.limits) as engine:
        found = explain(engine, judge, suite.cases[0], lambda _: None)

    assert found.first.row.sample == "realistic-1"
    assert found.fails
    assert found.before.floors > 1000
    assert not found.fixing
    # The suite has no tolerances for MNN, which runs the same graph.
    assert found.stage.startswith("export, or both runtimes alike: mnn runs")


GUARDED = RECIPE.replace(
    "return self.b(h if x.shape[1] <= 12 else h - h.mean(1, keepdim=True))",
    "return self.b(h.relu() / (h.relu() + 1e-15))",
)


@pytest.mark.slow  # the case runs four times
def test_the_operator_that_the_optimiser_left_out_is_the_cause(tmp_path, monkeypatch):
    text = SUITE.replace('exporter = "torchscript"\nopset = 17\n', "")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "guards_a_division.py").write_text(GUARDED)
    text = text.replace("branches_on_the_length", "guards_a_division")
    (tmp_path / "parity.toml").write_text(text)
    (tmp_path / "tolerances.toml").write_text(TOLERANCES)
    monkeypatch.syspath_prepend(tmp_path)
    suite = load_suite(tmp_path / "parity.toml")
    judge = Judge.of(suite, Settings())

    with Engine(Store(root=tmp_path / ".store"), suite.limits) as engine:
        found = explain(engine, judge, suite.cases[0], lambda _: None)

    said = " ".join(line.text for line in explanation_lines(found))
    assert "the exporter left out add (other = 1e-15) in front of it" in said
    assert "local error infinitely many floors" in said
    assert found.fixing[0].change.name == "optimize = false"
    assert found.fixing[0].passed
    outputs = judge.check(found.record, OUTPUTS)
    # It is in the component's own forward, and so in no module.
    assert "left out add (other = 1e-15) at add" in outputs.reason
