"""Verdicts over many pictures: error rates that hold wherever the drawing stops."""

import math

import numpy as np
import pytest

from harness.core.errors import SpecError
from harness.plugins.pictures.distribution import (
    ALPHA,
    BROKEN,
    CLAIMS,
    TYPICAL,
    Claim,
    Conclusion,
    decided,
    evidence,
    interval,
    least_pictures,
    try_claim,
)

RUNS, MOST = 300, 60


def _ratios(rng, worse_share):
    return list(np.where(rng.random(MOST) < worse_share, 2.0, 0.5))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("wrong", [Conclusion.WORSE, Conclusion.SHIP])
def test_at_the_boundary_a_wrong_verdict_is_rare_at_any_stop(share, wrong):
    rng = np.random.default_rng(5)
    claim = Claim(name="any", share=share)
    found = [try_claim(claim, _ratios(rng, share)).verdict for _ in range(RUNS)]
    # Four standard errors above the promise: a correct test fails once in 30,000 runs.
    slack = 4 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS)
    assert found.count(wrong) / RUNS <= ALPHA + slack


def test_evidence_has_mean_one_at_the_boundary():
    # The expectation over the whole binomial distribution, computed and not simulated.
    pictures, share = 30, 0.2
    mean = sum(
        math.comb(pictures, worse)
        * share**worse
        * (1 - share) ** (pictures - worse)
        * math.exp(evidence(pictures, worse, share, above=False))
        for worse in range(pictures + 1)
    )
    assert mean == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("ratio", "verdict", "most"),
    [
        (0.5, Conclusion.SHIP, 20),
        (2.0, Conclusion.WORSE, 8),
        (9.0, Conclusion.WORSE, 4),
    ],
)
def test_a_clear_case_ends_early(ratio, verdict, most):
    results = [try_claim(claim, [ratio] * 100) for claim in CLAIMS]
    assert decided(results) is verdict
    ended = [one.pictures for one in results if one.verdict is verdict]
    assert (max if verdict is Conclusion.SHIP else min)(ended) <= most


def test_the_forecast_is_the_number_of_pictures_that_decides():
    ratios = [2.0] + [0.5] * 5
    found = try_claim(BROKEN, [r * 4 for r in ratios])
    assert found.verdict is Conclusion.OPEN
    assert found.more
    assert BROKEN.share > 1 / 6  # so it forecasts SHIP
    total = 6 + found.more
    worse = 1 + round(found.more / 6)
    assert evidence(total, worse, BROKEN.share, above=False) >= -math.log(ALPHA)


def test_without_a_worse_picture_the_forecast_is_the_least_number_that_ships():
    found = try_claim(BROKEN, [0.5] * 9)
    assert found.verdict is Conclusion.OPEN
    assert found.more == least_pictures([BROKEN]) - 9


def test_a_share_that_lies_on_the_boundary_has_no_forecast():
    assert try_claim(TYPICAL, [0.5, 2.0] * 10).more is None


def test_a_build_that_breaks_two_pictures_of_five_does_not_ship():
    rng = np.random.default_rng(1)
    ratios = list(np.where(rng.random(200) < 0.4, 20.0, 0.5))
    assert decided([try_claim(claim, ratios) for claim in CLAIMS]) is Conclusion.WORSE
    # The mean rule that others use sees it too; a rule on the median would not.
    assert try_claim(TYPICAL, ratios).verdict is Conclusion.SHIP


def test_a_picture_that_is_not_finite_is_worse():
    assert try_claim(TYPICAL, [math.nan] * 20).verdict is Conclusion.WORSE


@pytest.mark.parametrize(("pictures", "worse"), [(10, 0), (40, 11), (50, 50)])
def test_the_interval_holds_what_was_seen_and_shrinks(pictures, worse):
    low, high = interval(pictures, worse)
    assert low <= worse / pictures <= high
    wide = high - low
    low, high = interval(4 * pictures, 4 * worse)
    assert high - low < wide


def test_the_least_visible_share_is_seen_nine_times_in_ten():
    rng = np.random.default_rng(7)
    visible = try_claim(TYPICAL, [0.5, 2.0] * (MOST // 2)).visible
    found = [try_claim(TYPICAL, _ratios(rng, visible)).verdict for _ in range(RUNS)]
    assert found.count(Conclusion.WORSE) / RUNS >= 0.9 - 3 * math.sqrt(0.09 / RUNS)
    assert visible < 0.85


@pytest.mark.parametrize(
    "claims",
    [CLAIMS, [Claim(name="a tenth", share=0.1)], [Claim(name="few", share=0.05)]],
)
def test_fewer_pictures_than_the_least_accept_nothing(claims):
    least = least_pictures(claims)
    assert decided([try_claim(c, [0.0] * least) for c in claims]) is Conclusion.SHIP
    fewer = [try_claim(c, [0.0] * (least - 1)) for c in claims]
    assert decided(fewer) is Conclusion.OPEN


def test_a_share_of_zero_is_no_claim():
    with pytest.raises(SpecError, match="between 0 and 1"):
        Claim(name="reader", share=0.0)
