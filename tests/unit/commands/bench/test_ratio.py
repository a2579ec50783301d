"""When one build is slower than another, and when it only seems slower."""

import math

import numpy as np
import pytest

from harness.plugins.bench.ratio import Pace, ratio_of


@pytest.mark.parametrize(
    ("ratios", "pace"),
    [
        pytest.param([1.1, 1.2, 1.15, 1.1, 1.3, 1.1], Pace.SLOWER, id="slower"),
        pytest.param([1.5, 1.5, 1.5, 0.99, 1.5, 1.5], Pace.SAME, id="once-faster"),
        pytest.param([0.9] * 8, Pace.FASTER, id="faster"),
        pytest.param([2.0] * 5, Pace.UNKNOWN, id="five-rounds"),
    ],
)
def test_a_build_is_slower_where_all_of_the_spread_is(ratios, pace):
    assert ratio_of(ratios).pace is pace


def test_a_ratio_is_said_with_its_spread_if_there_is_one():
    assert str(ratio_of([1.1, 1.2, 1.1, 1.1, 1.3, 1.1])) == "1.10 (1.10–1.30)"
    assert str(ratio_of([1.1, 1.2])) == "1.15"


@pytest.mark.parametrize(
    ("count", "cut"), [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5)]
)
def test_the_spread_leaves_out_what_tables_of_the_sign_test_say(count, cut):
    ratio = ratio_of([float(value) for value in range(count)])

    assert (ratio.low, ratio.high) == (cut, count - 1 - cut)


def test_equal_builds_are_told_apart_in_at_most_one_comparison_of_twenty():
    draw = np.random.default_rng(0)
    trials = 2000

    wrong = sum(
        ratio_of([math.exp(one) for one in draw.normal(0, 0.4, 10)]).pace
        is not Pace.SAME
        for _ in range(trials)
    )

    assert wrong / trials < 0.05
    assert wrong > 0, "the rule never speaks"
