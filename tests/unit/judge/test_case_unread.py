"""A case is judged by what is read of its values."""

import pytest

from harness.core.record import LAYERS, OUTPUTS
from tests.unit.found import TOLERANCES, verdicts_of
from tests.unit.reports import output, record, twice

FLOORS = TOLERANCES.format("mnn.fp32")


@pytest.mark.parametrize("what", [LAYERS, OUTPUTS])
def test_a_difference_at_padding_alone_is_no_failure_and_is_said(tmp_path, what):
    (verdict,) = verdicts_of(
        tmp_path,
        record(*twice(what, 1e5, 1.0), output(1.0)),
        text=FLOORS,
        whats=(what,),
    )

    assert verdict.outcome.passed
    assert "differs at padding alone" in verdict.reason
    assert "1e+05 floors" in verdict.reason


@pytest.mark.parametrize("what", [LAYERS, OUTPUTS])
def test_a_difference_in_what_is_read_fails_with_the_numbers_of_that(tmp_path, what):
    (verdict,) = verdicts_of(
        tmp_path,
        record(*twice(what, 1e5, 300.0), output(1.0)),
        text=FLOORS,
        whats=(what,),
    )

    assert not verdict.outcome.passed
    assert verdict.first.floors == pytest.approx(300.0, rel=1e-3)
    assert "padding" not in verdict.reason


def test_a_value_within_tolerance_keeps_its_numbers(tmp_path):
    (verdict,) = verdicts_of(
        tmp_path, record(*twice(OUTPUTS, 12.0, 1.0)), text=FLOORS, whats=(OUTPUTS,)
    )
    assert verdict.worst.floors == pytest.approx(12.0, rel=1e-3)
    assert "padding" not in verdict.reason
