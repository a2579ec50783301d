"""Each way a picture fails has its own outcome, and each flag excuses only its own."""

import math
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from harness.core.comparison import Picture
from harness.core.outcome import Outcome
from harness.judge.tolerance import Tolerance
from harness.judge.value import judge
from tests.unit.judge.test_value import measured

NAN = math.nan


def seen(**changes):
    """A comparison of two pictures that are near each other, some of it changed."""
    fields = {
        "expected_peak": 250.0,
        "actual_peak": 250.0,
        "expected_spread": 200.0,
        "actual_spread": 200.0,
        "mean_abs": 0.1,
        "psnr_db": 60.0,
        "ssim": 0.999,
        "perceptual": None,
        "perceptual_by": "not measured",
        "expected_read": "7",
        "actual_read": "7",
    }
    return measured(picture=Picture(**{**fields, **changes}))


def test_a_good_picture_is_within():
    verdict = judge(seen(), Tolerance(psnr_db=40.0, ssim=0.99), is_output=False)
    assert verdict.outcome is Outcome.WITHIN
    assert verdict.usage == pytest.approx(0.1)


FAILURES = {
    "black-reference": (
        {"expected_peak": 0.99},
        Outcome.BLACK,
        "black all over in the reference",
    ),
    "black-candidate-whatever-psnr": (
        {"actual_peak": 0.0, "psnr_db": 99.0},
        Outcome.BLACK,
        "black all over in the candidate",
    ),
    "both-black": (
        {"expected_peak": 0.0, "actual_peak": 0.0},
        Outcome.BLACK,
        "black all over in the reference and the candidate",
    ),
    "one-colour": (
        {"actual_spread": 0.99},
        Outcome.CONSTANT,
        "one colour all over in the candidate",
    ),
    "black-before-one-colour-and-before-its-reading": (
        {"actual_peak": 0.0, "actual_spread": 0.0, "actual_read": "1"},
        Outcome.BLACK,
        "black all over in the candidate",
    ),
    "misread-before-any-bound": (
        {"actual_read": "1", "psnr_db": 1.0},
        Outcome.MISREAD,
        "read as '1', expected '7'",
    ),
    "psnr": ({"psnr_db": 39.9}, Outcome.EXCEEDS, "PSNR 39.9 dB, at least 40.0 asked"),
    "ssim": ({"ssim": 0.98}, Outcome.EXCEEDS, "SSIM 0.9800, at least 0.9900"),
    "no-psnr": ({"psnr_db": NAN}, Outcome.EXCEEDS, "PSNR nan dB"),
    "no-ssim": ({"ssim": NAN}, Outcome.EXCEEDS, "SSIM nan"),
}


@pytest.mark.parametrize(
    ("changes", "outcome", "reason"), FAILURES.values(), ids=FAILURES
)
def test_each_way_a_picture_fails_has_its_own_outcome(changes, outcome, reason):
    verdict = judge(
        seen(**changes), Tolerance(psnr_db=40.0, ssim=0.99), is_output=False
    )
    assert verdict.outcome is outcome
    assert verdict.reason.startswith(reason)
    assert verdict.usage > 1
    assert outcome.measured
    assert not outcome.passed


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        pytest.param({"actual_peak": 0.0}, "allow_constant", id="black"),
        pytest.param({"actual_spread": 0.0}, "allow_constant", id="one-colour"),
        pytest.param({"actual_read": "1"}, "allow_misread", id="misread"),
    ],
)
def test_each_flag_lifts_its_own_outcome_and_no_other(changes, allowed):
    flags = ("allow_nonfinite", "allow_constant", "allow_misread")
    it, bound = seen(**changes), Tolerance(psnr_db=40.0)
    lifted: Any = partial(judge, it, bound, is_output=False)
    within = {flag: lifted(**{flag: True}).passed for flag in flags}
    assert within == {flag: flag == allowed for flag in flags}


def test_what_makes_numbers_meaningless_comes_before_a_reading():
    nonfinite = replace(seen(actual_read="1"), nonfinite_actual=1)
    verdict = judge(nonfinite, Tolerance(psnr_db=40.0), is_output=False)
    assert verdict.outcome is Outcome.NONFINITE


@pytest.mark.parametrize("limit", [0.0, 0.5, 0.99, 1.0])
def test_ssim_is_used_up_as_what_it_lacks_to_1(limit):
    tolerance = Tolerance(ssim=limit)

    def usage(ssim):
        return judge(seen(ssim=ssim), tolerance, is_output=False).usage

    assert usage(1.0) == 0.0
    assert usage(limit) == (0.0 if limit == 1.0 else 1.0)
    assert usage(limit - 0.01) > 1.0
