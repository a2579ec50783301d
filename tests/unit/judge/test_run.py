"""The exit codes of a run, of a pytest session and of the release gate."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY, Outcome
from harness.judge.run import (
    beside_baseline,
    exit_code,
    gate_code,
    of_part,
    pytest_status,
)


def verdict(outcome, case="unet/mnn/fp32", found=None) -> Any:
    return SimpleNamespace(outcome=outcome, found=found or outcome, case=case)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        pytest.param(["within", "gap"], 0, id="agree"),
        pytest.param(["within", "exceeds"], 1, id="differ"),
        pytest.param(["within", "crashed"], 2, id="could-not-tell"),
        pytest.param(["crashed", "exceeds"], 1, id="a-known-difference-outweighs"),
        pytest.param(["within", "coverage"], 2, id="too-little-compared"),
        pytest.param(["within", "unavailable"], 0, id="one-skipped"),
        pytest.param(["unavailable"], 2, id="all-skipped"),
        pytest.param(["within", "absent"], 2, id="a-target-is-not-there"),
        pytest.param([], 2, id="nothing-ran"),
    ],
)
def test_exit_codes(outcomes, code):
    assert exit_code([verdict(Outcome(outcome)) for outcome in outcomes]) == code


def test_what_is_required_is_no_skip():
    verdicts = [verdict(Outcome.WITHIN), verdict(Outcome.UNAVAILABLE)]
    assert exit_code(verdicts, required=["onnxruntime"]) == 0
    assert exit_code(verdicts, required=["mnn"]) == 2


def test_stale_words_are_could_not_tell():
    assert exit_code([verdict(Outcome.WITHIN)], ["a gap matches nothing"]) == 2


@pytest.mark.parametrize(
    ("code", "worse", "then"),
    [
        pytest.param(PARITY, False, PARITY, id="as-good"),
        pytest.param(PARITY, True, NO_PARITY, id="within-and-yet-worse"),
        pytest.param(NO_PARITY, False, NO_PARITY, id="a-failure-that-was-there"),
        pytest.param(CANNOT_TELL, True, CANNOT_TELL, id="could-not-tell-anyway"),
    ],
)
def test_a_baseline_turns_parity_alone_into_none(code, worse, then):
    assert beside_baseline(code, worse=worse) == then


def test_a_run_that_was_stopped_could_not_tell():
    assert of_part(PARITY, ended=False) == CANNOT_TELL
    assert of_part(NO_PARITY, ended=True) == NO_PARITY


@pytest.mark.parametrize(
    ("code", "status", "elsewhere", "then"),
    [
        pytest.param(PARITY, 0, False, 0, id="all-pass"),
        pytest.param(PARITY, 1, True, 1, id="another-test-failed"),
        pytest.param(NO_PARITY, 0, False, 1, id="worse-than-the-baseline"),
        pytest.param(NO_PARITY, 1, False, 1, id="numbers-differ"),
        pytest.param(CANNOT_TELL, 1, False, 2, id="nothing-could-be-compared"),
        pytest.param(CANNOT_TELL, 0, False, 2, id="all-skipped"),
        pytest.param(CANNOT_TELL, 1, True, 1, id="another-test-failed-too"),
        pytest.param(CANNOT_TELL, 3, False, 3, id="pytest-itself-failed"),
    ],
)
def test_a_session_ends_with_what_its_run_says(code, status, elsewhere, then):
    assert pytest_status(code, status, elsewhere=elsewhere) == then


@pytest.mark.parametrize(
    ("compared", "reasons", "code"),
    [
        pytest.param(True, False, PARITY, id="ship"),
        pytest.param(True, True, NO_PARITY, id="do-not-ship"),
        pytest.param(False, False, CANNOT_TELL, id="nothing-to-compare"),
        pytest.param(False, True, CANNOT_TELL, id="nothing-outweighs-reasons"),
    ],
)
def test_the_gate_says_ship_do_not_or_cannot_say(compared, reasons, code):
    assert gate_code(compared=compared, reasons=reasons) == code
