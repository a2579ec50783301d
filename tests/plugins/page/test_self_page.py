"""The page shows the model's own error in fewer bits beside each case's."""

from dataclasses import replace

import pytest

from harness.plugins.page.page import page_of
from tests.unit.found import cells, found_in, verdicts_of
from tests.unit.reports import chain, output, record

WITHIN = """
[mnn.fp32]
outputs = { floors = 16.0, within = "self-bf16" }
layers = "standard"
why = "only floors matter here"
"""


@pytest.fixture
def part(tmp_path):
    """The part of the page about a component whose output uses 0.4 of the limit."""
    own = replace(output(10.0), what="self-bf16")
    made = record(*chain(1.0, 2.0), output(4.0), own)
    facts = found_in(tmp_path, [made])
    verdicts = verdicts_of(tmp_path, made, text=WITHIN)
    (part,) = page_of(replace(facts, verdicts=verdicts)).cards
    return part


def test_a_note_and_a_column_have_the_ratio(part):
    assert "mnn fp32: outputs off by 0.4 × the model's own bfloat16" in part.notes
    assert cells(part.table, "× own") == [None, None, 0.4]


def test_the_chart_has_a_point_of_the_models_own_error_by_the_same_limits(part):
    points = {one["name"]: one for one in part.chart.figure["data"]}
    own = points["mnn fp32, the model's own bfloat16"]

    assert own["x"] == points["mnn fp32"]["x"][-1:]
    assert own["y"] == [1.0]
    assert own["customdata"] == [2]
