"""What is said of a graph that differs from PyTorch's, from records alone."""

from dataclasses import replace
from datetime import date

import pytest

from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS
from harness.judge.case import judge_case
from harness.judge.known_gaps import Gap
from harness.plugins.weights.judged import graph_notes
from tests.unit.reports import chain, output, policy_of, record

TOLERANCES = """
[mnn.fp32]
outputs = { tier = "standard", rtol = 1e-4, atol = 1.0, floors = 16.0 }
layers = "standard"
why = "only floors matter here"
"""


@pytest.fixture
def judged(tmp_path):
    policy = policy_of(tmp_path, TOLERANCES)

    def judge(made, what=LAYERS, gaps=()):
        today = date(2026, 1, 1)
        return judge_case(made, what, policy, gaps, min_coverage=0.9, today=today)

    return judge


EPSILON = {
    "probe": "norm",
    "module": "net.norm",
    "op": "aten.layer_norm.default",
    "name": "epsilon",
    "words": "epsilon is 1e-06 in the graph, 1e-05 in PyTorch",
}
PADDING = {**EPSILON, "name": "padding", "words": "padding is [0, 0] in the graph"}
GRAPH = {
    "tensors": 4,
    "matrices": 2,
    "equal": 4,
    "elsewhere": [],
    "stored": {},
    "differing": 0,
    "kinds": {},
    "weights": [],
}
TAKEN = {"by": "names", "left_out": [], "extra": [], "unfed": []}


@pytest.mark.parametrize(
    ("attribute", "floors", "about", "outcome"),
    [
        (EPSILON, 2, {}, Outcome.ATTRIBUTES),
        (EPSILON, 2, {"foreign": TAKEN}, Outcome.ATTRIBUTES),
        (PADDING, 2, {}, Outcome.ATTRIBUTES),
        (PADDING, 2, {"foreign": TAKEN}, Outcome.WITHIN),
        (PADDING, 40, {"foreign": TAKEN}, Outcome.ATTRIBUTES),
    ],
)
def test_an_attribute_fails_unless_rewritten(judged, attribute, floors, about, outcome):
    graphs = ({**GRAPH, "attributes": [attribute]},)
    made = record(*chain(1, 2), output(floors), graphs=graphs, **about)
    verdict = judged(made, OUTPUTS)
    assert verdict.found is outcome
    assert judged(made, LAYERS).found is Outcome.WITHIN
    if outcome is Outcome.ATTRIBUTES:
        assert verdict.reason.startswith(f"{attribute['words']}, at net.norm")


REMOVED = {
    "probe": "add",
    "module": "net.attn",
    "words": "add (other = 1e-15)",
    "reader": "v1",
}


@pytest.mark.parametrize(
    ("reader", "about", "named"),
    [
        pytest.param(9_000, {}, True, id="what-reads-past-it-is-off"),
        pytest.param(1, {}, False, id="it-changes-nothing-of-these-values"),
        pytest.param(9_000, {"foreign": TAKEN}, False, id="a-tool-moves-arithmetic"),
    ],
)
def test_what_the_exporter_left_out_is_named_if_it_matters(
    judged, reader, about, named
):
    graphs = ({**GRAPH, "attributes": [], "removed": [REMOVED]},)
    made = record(*chain(1, reader), output(99), graphs=graphs, **about)
    verdict = judged(made, OUTPUTS)

    assert verdict.found is Outcome.EXCEEDS
    told = "the exporter left out add (other = 1e-15) at net.attn: try optimize = false"
    assert (told in verdict.reason) == named
    assert verdict.first is not None
    agrees = replace(made, rows=(*chain(1, 1), output(1)))
    assert judged(agrees, OUTPUTS).found is Outcome.WITHIN
    assert any("net.attn" in note for note in graph_notes(agrees))


def test_fewer_bits_and_no_rewrite_are_blamed_for_outputs_that_fail(judged):
    graphs = ({**GRAPH, "attributes": [PADDING], "exact": False},)
    made = record(output(40), graphs=graphs, foreign=TAKEN)
    assert judged(made, OUTPUTS).found is Outcome.EXCEEDS


def test_a_known_gap_may_say_that_weights_are_others(judged):
    weight = {
        "name": "conv.weight",
        "constant": "w",
        "by": "name",
        "kind": "float16",
        "words": "it is PyTorch's, rounded to float16",
        "rms": 1e-4,
        "axes": 4,
        "other": "",
    }
    found = {"differing": 1, "kinds": {"float16": 1}, "weights": [weight]}
    graphs = ({**GRAPH, **found, "attributes": []},)
    made = record(output(2), graphs=graphs, foreign=TAKEN)
    gap = Gap(case="unet/*", outcome=Outcome.WEIGHTS, why="meant")

    assert judged(made, OUTPUTS).outcome is Outcome.WEIGHTS
    assert judged(made, OUTPUTS, [gap]).outcome is Outcome.GAP

    far = judged(replace(made, rows=(output(99),)), OUTPUTS, [gap])
    assert far.outcome is Outcome.STALE_GAP
    assert "gap says weights, and it is weights and exceeds; state in" in far.reason
