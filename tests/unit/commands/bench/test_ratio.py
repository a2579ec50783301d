"""When one build is slower than another, and when it only looks so."""

import statistics

import numpy as np
import pytest

from harness.commands.bench.ratio import Pace, median_interval, ratio_of


def test_a_build_that_is_slower_in_every_round_is_slower():
    ratio = ratio_of([1.1, 1.2, 1.15, 1.1, 1.3, 1.1], [1.0] * 6)

    assert ratio.pace is Pace.SLOWER
    assert (ratio.low, ratio.high) == (1.1, 1.3)


def test_a_build_that_is_faster_in_one_round_of_six_is_not_slower():
    ratio = ratio_of([1.5, 1.5, 1.5, 0.99, 1.5, 1.5], [1.0] * 6)

    assert ratio.value == 1.5
    assert ratio.pace is Pace.SAME


def test_a_build_that_is_faster_in_every_round_is_faster():
    assert ratio_of([0.9] * 8, [1.0] * 8).pace is Pace.FASTER


def test_drift_that_hits_both_builds_of_a_round_does_not_show():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]

    ratio = ratio_of([1.05 * value for value in drift], drift)

    assert ratio.value == pytest.approx(1.05)
    assert ratio.high - ratio.low < 1e-9


def test_five_rounds_are_too_few_to_tell_even_twice_as_slow():
    assert ratio_of([2.0] * 5, [1.0] * 5).pace is Pace.UNKNOWN


def test_rounds_of_two_builds_must_be_the_same_ones():
    with pytest.raises(ValueError, match="longer"):
        ratio_of([1.0, 2.0], [1.0] * 3)


@pytest.mark.parametrize(
    ("count", "cut"), [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5)]
)
def test_the_spread_leaves_out_what_tables_of_the_sign_test_say(count, cut):
    values = [float(value) for value in range(count)]

    assert median_interval(values) == (cut, count - 1 - cut)


def test_equal_builds_are_told_apart_in_at_most_one_comparison_of_twenty():
    draw = np.random.default_rng(0)
    trials = 2000

    wrong = sum(
        ratio_of(
            list(draw.lognormal(0, 0.3, 10)), list(draw.lognormal(0, 0.3, 10))
        ).pace
        is not Pace.SAME
        for _ in range(trials)
    )

    assert wrong / trials < 0.05
    assert wrong > 0, "the rule never speaks"


def test_a_ratio_is_the_median_of_the_rounds_ratios_not_of_times():
    times, others = [2.0, 10.0, 2.0, 2.0, 2.0, 2.0], [1.0, 5.0, 1.0, 1.0, 1.0, 1.0]

    assert ratio_of(times, others).value == statistics.median([2.0] * 6)
