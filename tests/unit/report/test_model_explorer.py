"""`harness.report.layers.node_data`: errors in Model Explorer's format."""

import json
import math

import pytest

from harness.report.layers import node_data
from tests.unit.found import found_in
from tests.unit.reports import chain, output, record


@pytest.fixture
def told(tmp_path):
    def tell(*rows):
        return node_data(found_in(tmp_path, [record(*rows)]).verdicts)["results"]

    return tell


def test_a_node_is_found_by_its_value_s_name_and_says_its_error_in_floors(told):
    results = told(*chain(1.0, 3.0), output(2.0))
    assert {name: one["value"] for name, one in results.items()} == pytest.approx(
        {"v0": 1.0, "v1": 3.0, "sample": 2.0}
    )


def test_a_node_s_colour_goes_by_its_tolerance(told):
    near, good, bad = (told(*chain(floors)) for floors in (15.0, 1.0, 17.0))
    assert len({one["v0"]["bgColor"] for one in (near, good, bad)}) == 3


def test_the_worst_of_all_samples_counts(told):
    results = told(*chain(1.0, sample="s-0"), *chain(5.0, sample="s-1"))
    assert results["v0"]["value"] == pytest.approx(5.0)


def test_a_value_without_a_number_is_above_all_others_and_bad(told):
    results = told(*chain(math.nan, 40.0))
    assert results["v0"]["value"] == pytest.approx(400.0)
    assert results["v0"]["bgColor"] == results["v1"]["bgColor"]
    json.dumps(results, allow_nan=False)
