"""An item's answer must not depend on its batch mates, nor on padding."""

from dataclasses import replace

import pytest

from harness.core.outcome import Outcome
from harness.core.record import OUTPUTS
from harness.plugins.contracts.judged import beside_notes, leaks
from tests.unit.found import TOLERANCES, verdicts_of
from tests.unit.reports import output, record

CASE = "net/onnxruntime/fp32"


def moved(deployed, reference=0.0, what="batch mates", case=CASE, **about):
    """A record of a file whose first item moves so far."""
    beside = {what: {"reference": reference, "deployed": deployed}}
    contract = {"sizes": {}, "inputs": [], "exchanged": [], "repeated": 0.0}
    return record(
        output(1.0), case=case, contract=({**contract, "beside": beside},), **about
    )


def notes(*records):
    return list(beside_notes(records, {one.key: one.case for one in records}))


@pytest.mark.parametrize("what", ["batch mates", "padding"])
def test_a_file_whose_item_moves_with_its_mates_or_padding_fails(tmp_path, what):
    one = moved(0.017, what=what)
    text = TOLERANCES.format("onnxruntime.fp32")
    (verdict,) = verdicts_of(tmp_path, one, text=text, whats=(OUTPUTS,))

    assert verdict.outcome is Outcome.UNSTEADY
    assert f"1.7e-02 of its size with other {what}" in verdict.reason
    assert notes(one) == []


def test_numbers_that_are_wrong_keep_their_outcome_and_the_dependence_is_said(tmp_path):
    one = moved(0.017)
    one = replace(one, rows=(output(1e6),))
    text = TOLERANCES.format("onnxruntime.fp32")
    (verdict,) = verdicts_of(tmp_path, one, text=text, whats=(OUTPUTS,))

    assert verdict.outcome is Outcome.EXCEEDS
    assert "1.7e-02 of its size with other batch mates" in verdict.reason


@pytest.mark.parametrize(
    "about",
    [
        {"case": "net/onnxruntime/int8-weights"},
        {"case": "net/onnxruntime/given", "graphs": ({"stored": {"int8": 2}},)},
    ],
)
def test_a_file_of_integers_does_not_fail_and_it_is_said(about):
    one = moved(0.017, **about)

    assert not leaks(one)
    (note,) = notes(one)
    assert "scale of its integers" in note
    assert "1.7e-02" in note


def test_a_file_is_not_held_to_what_pytorch_itself_does_not_keep():
    one = moved(0.2, reference=0.2)

    assert not leaks(one)
    (note,) = notes(one, one)
    assert note.startswith("net: PyTorch's own answer to an item moves by 2.0e-01")


@pytest.mark.parametrize("deployed", [0.0, 5e-4])
def test_rounding_is_no_dependence(deployed):
    one = moved(deployed)

    assert not leaks(one)
    assert notes(one) == []
