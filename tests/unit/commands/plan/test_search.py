"""`harness.plugins.plan.search`: the fewest bytes within the limits."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from harness.plugins.plan.search import (
    Layer,
    bits_of,
    choose,
    errors_by_bits,
    price,
    summed,
)

BITS = (32, 8, 4)


def layer(name, size, *shares):
    """Make a layer of `size` weights, and its shares of the limits with 4 bits."""
    return Layer(
        names=(f"op_{name}",),
        modules=(name,),
        costs={bits: size * bits for bits in BITS},
        errors=errors_by_bits(4, BITS, {4: shares}) if shares else {},
    )


def drawn(seed):
    rng = np.random.default_rng(seed)
    return [
        layer(str(at), int(rng.integers(1, 9)), *rng.exponential(0.5, 2))
        for at in range(5)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_no_other_choice_within_the_budget_is_smaller(seed):
    layers = drawn(seed)
    every = [list(bits) for bits in product(BITS, repeat=len(layers))]
    within = [bits for bits in every if np.mean(summed(layers, bits)) <= 1.0]
    chosen = choose(layers, 1.0)
    assert np.mean(summed(layers, chosen)) <= 1.0 + 1e-9
    least = min(price(layers, bits) for bits in within)
    assert price(layers, chosen) == pytest.approx(least, rel=1e-3)


def test_a_layer_that_was_not_measured_stays_in_float32():
    assert choose([layer("known", 9, 0.1), layer("unknown", 9)], 1.0) == [4, 32]


def test_a_larger_budget_makes_no_larger_file():
    layers = drawn(0)
    sizes = [price(layers, choose(layers, at)) for at in (0.1, 0.5, 1.0, 5.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert len({*sizes}) > 1


def test_a_layer_that_would_use_the_whole_bound_keeps_more_bits():
    assert choose([layer("quiet", 100, 0.01), layer("loud", 100, 50.0)], 1.0) == [4, 8]


def test_operators_with_the_same_weights_get_the_same_bits():
    shared = Layer(names=("a", "b"), modules=("m",), costs={4: 1}, errors={4: (0.0,)})
    assert bits_of([shared], [4]) == (("a", 4), ("b", 4))


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        pytest.param({32: 3.0, 8: 2.0, 4: 2.5}, 8, id="the-fastest"),
        pytest.param({32: 3.0, 8: 4.0, 4: 5.0}, 32, id="float32-is-the-fastest"),
        pytest.param({32: 3.0, 8: 2.0}, 8, id="a-width-without-a-time"),
    ],
)
def test_a_fast_plan_takes_the_fastest_width_that_was_timed(seconds, chosen):
    assert choose([replace(layer("some", 9, 0.1), seconds=seconds)], 1.0) == [chosen]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        pytest.param(
            {8: [4.0], 16: [0.5]}, {32: (0.0,), 16: (0.5,), 8: (4.0,)}, id="both"
        ),
        pytest.param(
            {8: [4.0], 16: [np.nan]}, {32: (0.0,), 8: (4.0,)}, id="no-float16"
        ),
        pytest.param({8: [np.inf], 16: [0.5]}, {}, id="no-integers"),
    ],
)
def test_a_width_that_was_measured_does_not_follow_from_another(measured, expected):
    assert errors_by_bits(8, (32, 16, 8), measured) == expected
