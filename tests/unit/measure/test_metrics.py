"""The table of metrics: each row fits its fields, and each number is numpy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.comparison import Comparison, Picture
from harness.judge.tolerance import BOUNDS, Tolerance
from harness.measure.compare import compare
from harness.measure.metrics import BOUNDED, METRIC, METRICS, Scale, Sums

LOOSENED = {Scale.ERROR: 1.5, Scale.DECIBELS: -3.0, Scale.SIMILARITY: -0.25}


def distance_of(left, right):
    """1 - cosine in float64, as half the squared distance of the two unit vectors."""
    left, right = (side.astype(np.float64).ravel() for side in (left, right))
    apart = right / np.linalg.norm(right) - left / np.linalg.norm(left)
    return 0.5 * np.dot(apart, apart)


def noisy(shape, scale, seed=0):
    draw = np.random.default_rng(seed)
    expected = draw.standard_normal(shape).astype(np.float32)
    noise = draw.standard_normal(shape).astype(np.float32)
    return expected, expected + np.float32(scale) * noise


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_row_names_a_field_that_holds_its_number(metric):
    holder = Picture if metric.of_pictures else Comparison
    assert metric.field.rpartition(".")[2] in holder.__annotations__


def test_every_metric_that_can_be_a_bound_is_one_of_a_tolerance():
    assert sorted(Tolerance.__struct_fields__) == sorted((*BOUNDS, "within"))
    assert [metric.name for metric in BOUNDED] == [
        *("atol", "floors", "sqnr_db", "cosine_distance", "psnr_db", "ssim")
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 1e-4, 1e-2, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("shape", [(7,), (3, 130, 129), (2, 300_001)])
def test_cosine_distance_agrees_with_numpy_in_float64(shape, scale, dtype):
    expected, actual = (side.astype(dtype) for side in noisy(shape, scale, seed=5))
    found = compare(expected=expected, actual=actual).cosine_distance
    assert found == pytest.approx(distance_of(expected, actual), rel=1e-8, abs=1e-17)


def test_cosine_distance_keeps_the_digits_that_a_subtraction_loses():
    # One element across the rest: the angle is e / |x|, and 1 - cosine half its square.
    expected = np.zeros(1000, np.float32)
    expected[0] = 1.0
    actual = expected.copy()
    actual[1] = 2.0**-40
    comparison = compare(expected=expected, actual=actual)
    assert 1.0 - comparison.cosine == 0.0
    assert comparison.cosine_distance == pytest.approx(2.0**-81, rel=1e-12)


@pytest.mark.parametrize(
    ("expected", "actual", "distance"),
    [
        pytest.param([0.0, 0.0], [0.0, 0.0], 0.0, id="both-zero"),
        pytest.param([0.0, 0.0], [1.0, 2.0], 1.0, id="expected-zero"),
        pytest.param([1.0, 2.0], [0.0, 0.0], 1.0, id="actual-zero"),
        pytest.param([1.0, 2.0], [2.0, 4.0], 0.0, id="twice-as-large"),
        pytest.param([1.0, 2.0], [-1.0, -2.0], 2.0, id="opposite"),
        pytest.param([1.0, 0.0], [0.0, 1.0], 1.0, id="across"),
        pytest.param([1e-30, 0.0], [1e30, 0.0], 0.0, id="far-larger"),
    ],
)
def test_cosine_distance_of_directions(expected, actual, distance):
    comparison = compare(
        expected=np.array(expected, np.float32), actual=np.array(actual, np.float32)
    )
    assert comparison.cosine_distance == pytest.approx(distance, abs=1e-15)


def test_cosine_distance_leaves_out_what_is_not_finite():
    expected, actual = noisy((5, 600), 1e-2)
    finite = compare(expected=expected[:, 1:], actual=actual[:, 1:]).cosine_distance
    actual[:, 0] = np.nan
    found = compare(expected=expected, actual=actual).cosine_distance
    assert found == pytest.approx(finite, rel=1e-12)


@pytest.mark.parametrize("metric", BOUNDED, ids=lambda metric: metric.name)
def test_the_direction_is_one_in_all_that_asks_for_it(metric):
    limit = 0.5
    beyond = limit + LOOSENED[metric.scale]

    assert metric.is_met(limit, limit)
    assert not metric.is_met(beyond, limit)
    assert not metric.is_met(math.nan, limit)
    assert metric.is_looser(beyond, limit)
    assert not metric.is_looser(limit, beyond)
    assert metric.worst(beyond, limit) == metric.worst(limit, beyond) == beyond
    assert math.isnan(metric.worst(math.nan, limit))
    assert metric.times(beyond, limit) > 1.0
    assert metric.times(limit, beyond) < 1.0


@pytest.mark.parametrize("metric", BOUNDED, ids=lambda metric: metric.name)
def test_no_error_meets_every_bound_and_uses_nothing_of_it(metric):
    assert metric.is_met(metric.without_error, 0.5)
    assert metric.times(metric.without_error, 0.5) == 0.0


@pytest.mark.parametrize("metric", BOUNDED, ids=lambda metric: metric.name)
@given(value=st.floats(1e-6, 0.9))
def test_headroom_and_rounding_only_loosen(metric, value):
    grown = metric.strained(value, 2.0, 6.0)
    assert not metric.is_looser(value, grown)
    # A bound within 1e-9 of two digits is those two digits.
    assert metric.times(grown, metric.rounded(grown)) <= 1.0 + 1e-8


@pytest.mark.parametrize("name", ["rms", "sqnr_db", "cosine_distance"])
def test_a_larger_error_is_as_many_times_larger_in_every_unit(name):
    metric = METRIC[name]
    assert metric.measure is not None
    # Errors across the values, so that none of them is along.
    one, ten = (
        metric.measure(
            Sums(
                count=4,
                error_squared=size**2,
                expected_squared=1.0,
                actual_squared=1.0 + size**2,
                product=1.0,
                along=0.0,
            )
        )
        for size in (1e-5, 1e-4)
    )

    assert metric.times(ten, one) == pytest.approx(10.0, rel=1e-6)
    assert metric.strained(one, 10.0, 20.0) == pytest.approx(ten, rel=1e-6)


def test_a_bound_ends_where_its_metric_does():
    distance = METRIC["cosine_distance"]
    assert distance.strained(1.5, 2.0, 3.0) == 2.0
    assert distance.rounded(1.999) == 2.0
    assert Tolerance(cosine_distance=2.0).cosine_distance == 2.0


def test_a_metric_of_several_rtol_is_read_at_one():
    comparison = compare(expected=np.full(3, 2.0), actual=np.full(3, 2.5))
    assert METRIC["atol"].of(comparison) == 0.5
    assert METRIC["atol"].of(comparison, 1e-2) == pytest.approx(0.48)


def test_a_picture_that_is_none_has_no_number():
    comparison = compare(expected=np.ones(3), actual=np.ones(3))
    numbers = [metric.error(comparison) for metric in METRICS if metric.of_pictures]
    assert numbers
    assert all(number is not None and math.isnan(number) for number in numbers)
