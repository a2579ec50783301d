"""Rows that a mask takes out are judged apart: said, and no failure."""

from dataclasses import replace

import pytest
from msgspec import structs

from harness.core.record import LAYERS, OUTPUTS, READ, as_read
from harness.core.text import screen
from harness.report.summary import summary
from tests.unit.found import TOLERANCES, found_in, verdicts_of
from tests.unit.reports import output, record, row, twice

FLOORS = TOLERANCES.format("mnn.fp32")


def test_the_summary_says_it_once_for_cases_that_are_alike(tmp_path):
    rows = twice(OUTPUTS, 1e5, 1.0)
    cases = [record(*rows, case=f"net/{one}/fp32") for one in ("mnn", "onnxruntime")]
    lines = [line.text for line in screen(summary(found_in(tmp_path, cases)))]

    assert "differs at padding alone" in " ".join(lines)
    assert " ".join(lines).count("at padding alone") == 1


def test_rows_of_what_is_read_stand_for_their_values():
    whole, read = twice(OUTPUTS, 1e5, 1.0)
    assert as_read((whole, read)) == (replace(read, what=OUTPUTS),)


def layers_of(whole_of_reader, read_of_reader, error=1e5):
    """A failing value, and one that is computed from it."""
    first = row("weights", error)
    about = {"parents": ("weights",), "position": 1}
    reader = row("v", whole_of_reader, **about)
    read = replace(row("v", read_of_reader, **about), what=READ[LAYERS])
    return first, reader, read


def judged_layers(folder, *rows):
    about = record(*rows, output(1.0))
    (verdict,) = verdicts_of(folder, about, text=FLOORS, whats=(LAYERS,))
    return verdict


def test_a_value_that_padding_alone_reads_is_no_failure(tmp_path):
    verdict = judged_layers(tmp_path, *layers_of(1e5, 1.0))
    assert verdict.outcome.passed
    assert "weights and 1 other value differ at padding alone" in verdict.reason


@pytest.mark.parametrize("errors", [(1e5, 300.0), (1.0, 1.0)], ids=["read", "alike"])
def test_a_value_that_more_than_padding_reads_fails(tmp_path, errors):
    verdict = judged_layers(tmp_path, *layers_of(*errors))
    assert not verdict.outcome.passed
    assert verdict.first.row.probe == "weights"


def test_one_reader_at_padding_excuses_nothing_where_another_reader_fails(tmp_path):
    other = row("w", 1e3, parents=("weights",), position=2)
    verdict = judged_layers(tmp_path, *layers_of(1e5, 1.0), other)
    assert verdict.first.row.probe == "weights"


def test_a_wrong_shape_is_never_excused_by_padding(tmp_path):
    first, *rest = layers_of(1e5, 1.0)
    shape = structs.replace(first.comparison, actual_shape=(3, 8))
    verdict = judged_layers(tmp_path, replace(first, comparison=shape), *rest)
    assert not verdict.outcome.passed
