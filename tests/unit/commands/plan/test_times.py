"""`harness.plugins.plan.times`: a plan is fast if it is faster than what holds too."""

import pytest

from harness.core.text import screen
from harness.plugins.bench.ratio import ratio_of
from harness.plugins.plan.search import Layer
from harness.plugins.plan.times import PlanTimes, priced, time_lines

FASTER = ratio_of([0.8, 0.7, 0.8, 0.9, 0.8, 0.8])
SAME = ratio_of([0.8, 1.1, 1.0, 0.9, 1.0, 1.2])


def times(*, kinds=None, **ratios):
    """Times of a plan that takes 4 ms, with its ratios to other files."""
    others = {name: 4e-3 / ratio.value for name, ratio in ratios.items()}
    return PlanTimes(
        title="Some Runtime",
        inputs="r0",
        threads=1,
        medians_s={**others, "planned": 4e-3},
        ratios=ratios,
        kinds=kinds or {32: ("Gemm",), 8: ("MatMulInteger",)},
    )


def test_a_plan_that_is_faster_than_every_rival_is_fast():
    assert times(fp32=FASTER, int8=FASTER).not_faster(["fp32", "int8"]) == ""


def test_a_rival_that_is_as_fast_is_named_with_the_spread():
    assert times(fp32=FASTER, int8=SAME).not_faster(["fp32", "int8"]) == (
        "the plan takes 4 ms and int8, which holds the bound too, 4 ms: 1.00 "
        "(0.80–1.20) of its time, no difference beyond the spread"
    )


def test_a_file_that_does_not_hold_is_no_rival():
    assert times(fp32=FASTER, int4=SAME).not_faster(["fp32"]) == ""


@pytest.mark.parametrize(
    ("kinds", "again"),
    [({32: ("Gemm",), 8: ("Int",)}, False), ({32: ("C",), 4: ("C",)}, True)],
    ids=["other-operators", "same-operators"],
)
def test_operators_of_all_widths_may_compute_in_float32_again(kinds, again):
    text = times(kinds=kinds, fp32=FASTER).arithmetic
    assert ("may compute in float32 again" in text) is again


def test_the_screen_has_each_files_time_and_the_plans_ratio_to_it():
    lines = [line.text for line in screen(time_lines(times(fp32=FASTER, int8=SAME)))]

    assert lines[2].split() == ["fp32", "5", "ms", "0.80", "(0.70–0.90)"]
    assert lines[4].split() == ["planned", "4", "ms"]


@pytest.mark.parametrize(
    ("seconds", "prices"),
    [
        pytest.param({32: 2.0, 8: 1.0}, {32: 2.0, 8: 1.0}, id="all-times"),
        pytest.param({8: 1.0}, {32: 0.0}, id="no-time-in-float32"),
        pytest.param({}, {32: 0.0}, id="no-times"),
    ],
)
def test_a_layer_without_its_time_in_float32_stays_in_float32(seconds, prices):
    layer = Layer(
        names=("op",),
        modules=("m",),
        costs={32: 400, 8: 100},
        errors={32: (0.0,), 8: (0.1,)},
    )
    assert priced(layer, seconds).prices == prices
