"""Each kind of failure has its own outcome, and an unmeasured value never passes."""

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.core.comparison import RTOL_GRID, Comparison, to_columns
from harness.core.outcome import Outcome
from harness.core.record_form import from_columns
from harness.judge.tolerance import TIERS, Tolerance
from harness.judge.value import judge
from harness.measure.compare import compare

INF, NAN = math.inf, math.nan
ATOL = Tolerance(rtol=1e-4, atol=1e-2)
SHARED = Tolerance(rtol=1e-4, atol=1e-2, share=0.999, cap=1.0)
SHARED_99 = msgspec.structs.replace(SHARED, share=0.99)
FLOORS = Tolerance(floors=16.0)
SQNR = Tolerance(sqnr_db=30.0)
COSINE = Tolerance(cosine_distance=1e-4)
ALL = Tolerance(rtol=1e-4, atol=1e-2, floors=16.0, sqnr_db=30.0)


def measured(**changes):
    """A comparison within every tolerance above, with some of it changed."""
    fields = {
        "expected_shape": (4, 5),
        "actual_shape": (4, 5),
        "expected_dtype": "float32",
        "actual_dtype": "float32",
        "count": 20,
        "finite_count": 20,
        "max_abs": 1e-3,
        "rms": 1e-4,
        "p99": 1e-3,
        "p999": 1e-3,
        "sqnr_db": 80.0,
        "expected_rms": 1.0,
        "required_atol": (1e-3,) * len(RTOL_GRID),
        "floor_rms": 1e-4,
        "floor_multiple": 1.0,
    }
    return Comparison(**{**fields, **changes})


def at_each_rtol(atol):
    return (atol,) * len(RTOL_GRID)


def test_what_these_tests_change_is_within_every_tolerance():
    for tolerance in (ATOL, SHARED, FLOORS, SQNR, ALL):
        assert judge(measured(), tolerance, is_output=True).outcome is Outcome.WITHIN


FAILURES = {
    "shape": ({"actual_shape": (5, 4)}, Outcome.SHAPE, "shape [5, 4], expected [4, 5]"),
    "integer-for-floating": (
        {"actual_dtype": "int64"},
        Outcome.DTYPE,
        "dtype int64, expected float32",
    ),
    "integer-for-boolean": (
        {"expected_dtype": "bool", "actual_dtype": "uint8"},
        Outcome.DTYPE,
        "dtype uint8, expected bool",
    ),
    "complex-is-not-judged": (
        {"expected_dtype": "complex64", "actual_dtype": "complex64"},
        Outcome.DTYPE,
        "dtype complex64, expected complex64",
    ),
    "empty": (
        {"expected_shape": (0, 4), "actual_shape": (0, 4), "count": 0},
        Outcome.EMPTY,
        "no element to compare in shape [0, 4]",
    ),
    "nan-in-the-candidate": (
        {"nonfinite_actual": 3, "nonfinite_mismatched": 3},
        Outcome.NONFINITE,
        "3 of 20 values are not finite, 0 in the reference",
    ),
    "nan-in-the-reference": (
        {"nonfinite_expected": 3, "nonfinite_mismatched": 3},
        Outcome.NONFINITE,
        "0 of 20 values are not finite, 3 in the reference",
    ),
    "nan-on-both-sides": (
        {"nonfinite_expected": 3, "nonfinite_actual": 3},
        Outcome.NONFINITE,
        (
            "3 of 20 values are not finite, where the reference's are not: "
            "`allow_nonfinite` lets that pass"
        ),
    ),
    "constant-candidate": (
        {"actual_constant": True},
        Outcome.CONSTANT,
        "one value everywhere in the candidate",
    ),
    "constant-on-both-sides": (
        {"expected_constant": True, "actual_constant": True},
        Outcome.CONSTANT,
        "one value everywhere in the reference and the candidate",
    ),
    "too-far": (
        {"required_atol": at_each_rtol(7.12e-2)},
        Outcome.EXCEEDS,
        "needs atol 7.120e-02 at rtol 1e-04, allowed 1.000e-02",
    ),
    "too-many-floors": (
        {"floor_multiple": 412.0},
        Outcome.EXCEEDS,
        "412 floors, allowed 16",
    ),
    "no-floor": (
        {"floor_multiple": None},
        Outcome.EXCEEDS,
        "no noise floor was measured, so 16 floors cannot be checked",
    ),
    "too-noisy": (
        {"sqnr_db": 18.2},
        Outcome.EXCEEDS,
        "SQNR 18.2 dB, at least 30.0 asked",
    ),
}


@pytest.mark.parametrize(
    ("changes", "outcome", "reason"), FAILURES.values(), ids=FAILURES
)
def test_each_way_to_fail_has_its_own_outcome(changes, outcome, reason):
    verdict = judge(measured(**changes), ALL, is_output=True)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert verdict.usage > 1.0
    assert not verdict.passed


def test_the_first_obstacle_is_the_one_reported():
    fixes: list[dict[str, Any]] = [
        {"actual_shape": (4, 5)},
        {"actual_dtype": "float32"},
        {"count": 20},
        {"nonfinite_actual": 0},
        {"actual_constant": False},
    ]
    comparison = measured(
        actual_shape=(1,),
        actual_dtype="bool",
        count=0,
        nonfinite_actual=1,
        actual_constant=True,
        sqnr_db=NAN,
    )
    seen = [judge(comparison, ALL, is_output=True).outcome]
    for change in fixes:
        comparison = msgspec.structs.replace(comparison, **change)
        seen.append(judge(comparison, ALL, is_output=True).outcome)

    assert seen == [
        Outcome.SHAPE,
        Outcome.DTYPE,
        Outcome.EMPTY,
        Outcome.NONFINITE,
        Outcome.CONSTANT,
        Outcome.EXCEEDS,
    ]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("float32", "float16"),
        ("float64", "float32"),
        ("int64", "int32"),
        ("uint8", "int8"),
        ("bool", "bool"),
    ],
)
def test_width_does_not_matter_within_a_kind(expected, actual):
    comparison = measured(expected_dtype=expected, actual_dtype=actual)
    assert judge(comparison, ALL, is_output=True).passed


def test_a_declared_constant_or_a_single_element_or_a_layer_is_judged_by_numbers():
    constant = measured(expected_constant=True, actual_constant=True)
    assert judge(constant, ALL, is_output=True, allow_constant=True).passed
    assert judge(constant, ALL, is_output=False).passed
    assert judge(msgspec.structs.replace(constant, count=1), ALL, is_output=True).passed
    far = msgspec.structs.replace(constant, required_atol=at_each_rtol(1.0))
    assert judge(far, ALL, is_output=False).outcome is Outcome.EXCEEDS


def test_declared_nonfinite_values_must_be_at_the_same_places():
    masked = measured(nonfinite_expected=3, nonfinite_actual=3, finite_count=17)

    def outcome(comparison):
        verdict = judge(comparison, ALL, is_output=True, allow_nonfinite=True)
        return verdict.outcome, verdict.reason

    assert outcome(masked)[0] is Outcome.WITHIN
    assert outcome(msgspec.structs.replace(masked, nonfinite_mismatched=2)) == (
        Outcome.NONFINITE,
        "2 non-finite values are not where expected",
    )
    assert outcome(msgspec.structs.replace(masked, finite_count=0)) == (
        Outcome.NONFINITE,
        "no value is finite, so none can be compared",
    )
    assert (
        outcome(msgspec.structs.replace(masked, floor_multiple=99.0))[0]
        is Outcome.EXCEEDS
    )


@pytest.mark.parametrize(
    ("tolerance", "changes"),
    [
        pytest.param(ATOL, {"required_atol": at_each_rtol(NAN)}, id="atol"),
        pytest.param(SHARED, {"required_atol": at_each_rtol(NAN)}, id="cap"),
        pytest.param(SHARED, {"p999": NAN}, id="share"),
        pytest.param(FLOORS, {"floor_multiple": NAN}, id="floors"),
        pytest.param(FLOORS, {"floor_multiple": NAN, "max_abs": NAN}, id="max_abs"),
        pytest.param(SQNR, {"sqnr_db": NAN}, id="sqnr"),
        pytest.param(COSINE, {"cosine_distance": NAN}, id="cosine-distance"),
        pytest.param(ALL, {"sqnr_db": NAN}, id="one-of-several"),
        pytest.param(ATOL, {"required_atol": at_each_rtol(INF)}, id="infinite-atol"),
        pytest.param(SQNR, {"sqnr_db": -INF}, id="infinite-noise"),
    ],
)
def test_a_metric_that_is_no_number_never_passes(tolerance, changes):
    verdict = judge(measured(**changes), tolerance, is_output=True)
    assert verdict.outcome is Outcome.EXCEEDS
    assert verdict.usage > 1e9


@pytest.mark.parametrize(
    ("tolerance", "changes", "usage"),
    [
        pytest.param(ATOL, {"required_atol": at_each_rtol(5e-3)}, 0.5, id="atol"),
        pytest.param(ATOL, {"required_atol": at_each_rtol(1e-2)}, 1.0, id="at-limit"),
        pytest.param(ATOL, {"required_atol": at_each_rtol(3e-2)}, 3.0, id="beyond"),
        pytest.param(ATOL, {"required_atol": at_each_rtol(0.0)}, 0.0, id="none"),
        pytest.param(FLOORS, {"floor_multiple": 4.0}, 0.25, id="floors"),
        pytest.param(SQNR, {"sqnr_db": 50.0}, 0.1, id="sqnr-twenty-to-spare"),
        pytest.param(SQNR, {"sqnr_db": 10.0}, 10.0, id="sqnr-twenty-short"),
        pytest.param(SQNR, {"sqnr_db": 30.0}, 1.0, id="sqnr-at-limit"),
        pytest.param(SQNR, {"sqnr_db": INF}, 0.0, id="sqnr-infinite"),
        pytest.param(COSINE, {"cosine_distance": 1e-6}, 0.1, id="cosine-to-spare"),
        pytest.param(COSINE, {"cosine_distance": 1e-2}, 10.0, id="cosine-too-wide"),
        pytest.param(COSINE, {"cosine_distance": 1e-4}, 1.0, id="cosine-at-limit"),
        pytest.param(ALL, {"floor_multiple": 15.0}, 15 / 16, id="largest-of-all"),
        pytest.param(
            Tolerance(rtol=0.0, atol=0.0),
            {"required_atol": at_each_rtol(1e-30)},
            INF,
            id="bound-of-zero",
        ),
        pytest.param(
            Tolerance(floors=0.0), {"floor_multiple": 0.0}, 0.0, id="zero-of-0"
        ),
    ],
)
def test_usage_is_the_largest_part_of_a_bound_that_is_used(tolerance, changes, usage):
    verdict = judge(measured(**changes), tolerance, is_output=True)
    assert verdict.usage == pytest.approx(usage)
    assert verdict.passed is (usage <= 1.0)


def test_a_failure_is_reported_before_a_pass_and_the_worst_failure_first():
    comparison = measured(floor_multiple=17.0, sqnr_db=10.0)
    assert judge(comparison, ALL, is_output=True).reason.startswith("SQNR 10.0 dB")


def test_the_atol_is_the_one_needed_at_the_rtol_in_force():
    required = (6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
    for rtol, atol in zip(RTOL_GRID, required, strict=True):
        comparison = measured(required_atol=required)
        enough = Tolerance(rtol=rtol, atol=atol)
        short = Tolerance(rtol=rtol, atol=math.nextafter(atol, 0.0))
        assert judge(comparison, enough, is_output=True).passed
        assert not judge(comparison, short, is_output=True).passed


def test_numbers_that_differ_never_read_the_same():
    atol = 1e-2
    needed = math.nextafter(atol, 1.0)
    verdict = judge(measured(required_atol=at_each_rtol(needed)), ATOL, is_output=True)
    assert verdict.usage > 1.0
    assert verdict.reason == (
        "needs atol 0.010000000000000002 at rtol 1e-04, allowed 0.01"
    )


def test_beyond_the_limit_is_more_than_1_though_the_ratio_rounds_to_1():
    comparison = measured(sqnr_db=math.nextafter(1.0, 0.0))
    verdict = judge(comparison, Tolerance(sqnr_db=1.0), is_output=True)
    assert verdict.outcome is Outcome.EXCEEDS
    assert verdict.usage > 1.0
    assert verdict.reason == "SQNR 0.9999999999999999 dB, at least 1 asked"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"p999": 2e-2, "required_atol": at_each_rtol(0.5)},
            "99.9 % of elements need atol 2.000e-02, allowed 1.000e-02",
            id="too-many-outside",
        ),
        pytest.param(
            {"required_atol": at_each_rtol(2.0)},
            "the worst needs atol 2.000e+00 at rtol 1e-04, cap 1.000e+00",
            id="one-beyond-the-cap",
        ),
    ],
)
def test_a_share_bounds_most_elements_and_the_cap_the_rest(changes, reason):
    verdict = judge(measured(**changes), SHARED, is_output=True)
    assert (verdict.outcome, verdict.reason) == (Outcome.EXCEEDS, reason)


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        pytest.param(
            {"p999": 1e-3, "required_atol": at_each_rtol(0.5)},
            {SHARED: True, ATOL: False},
            id="few-outside",
        ),
        pytest.param(
            {"p99": 1e-3, "p999": 0.1, "required_atol": at_each_rtol(0.5)},
            {SHARED_99: True, SHARED: False},
            id="each-share-reads-its-own-quantile",
        ),
        pytest.param(
            {"p999": 0.5, "required_atol": at_each_rtol(5e-3)},
            {SHARED: True, ATOL: True},
            id="never-stricter-than-all-elements",
        ),
    ],
)
def test_a_share_lets_a_few_elements_be_further_off(changes, passed):
    comparison = measured(**changes)
    for tolerance, expected in passed.items():
        assert judge(comparison, tolerance, is_output=True).passed is expected


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32"])
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("value", [0, 1])
def test_equal_values_pass_every_tier_without_a_floor_or_a_signal(dtype, tier, value):
    values = np.full((3, 2), value, dtype=dtype)
    comparison = compare(expected=values, actual=values.copy())
    for group in ("outputs", "layers"):
        tolerance = TIERS[tier][group]
        assert judge(comparison, tolerance, is_output=False).passed


VALUES = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 1.0 + 1e-4, -1e-5])


@st.composite
def pairs(draw):
    shape = draw(hnp.array_shapes(max_dims=3, max_side=4))
    expected = draw(hnp.arrays(np.float64, shape, elements=VALUES))
    step = draw(st.sampled_from([0.0, 1e-7, 1e-5, 1e-3, 1.0]))
    noise = draw(hnp.arrays(np.float64, shape, elements=st.floats(-1.0, 1.0)))
    return expected, expected + step * noise


TOLERANCES = st.builds(
    Tolerance,
    rtol=st.sampled_from(RTOL_GRID),
    atol=st.sampled_from([0.0, 1e-8, 1e-5, 1e-3, 0.1]) | st.floats(0.0, 2.0),
)


@given(pair=pairs(), tolerance=TOLERANCES)
def test_judge_agrees_with_allclose_in_float64(pair, tolerance):
    expected, actual = pair
    verdict = judge(
        compare(expected=expected, actual=actual), tolerance, is_output=False
    )
    bound = tolerance.atol + tolerance.rtol * np.abs(expected)
    error = np.abs(actual - expected)

    # In the last bit the two orders of addition may round apart.
    if not np.any(np.isclose(error, bound, rtol=1e-12, atol=1e-12) & (error > 0.0)):
        assert verdict.passed is bool(
            np.allclose(actual, expected, rtol=tolerance.rtol, atol=tolerance.atol)
        )


@given(pair=pairs(), tolerance=TOLERANCES, more=st.floats(0.0, 1e6))
def test_what_passes_still_passes_with_more_atol(pair, tolerance, more):
    expected, actual = pair
    comparison = compare(expected=expected, actual=actual)
    looser = msgspec.structs.replace(tolerance, atol=tolerance.atol + more)
    first, second = (
        judge(comparison, each, is_output=False) for each in (tolerance, looser)
    )
    assert second.passed or not first.passed
    assert second.usage <= first.usage


# Few values, so that bounds and metrics often meet.
LEVELS = st.sampled_from([0.0, 1.0, 2.0, 3.0])
BOUNDS = st.none() | LEVELS
METRICS = LEVELS | st.sampled_from([NAN, INF])


@st.composite
def tolerances(draw):
    rtol, atol = draw(st.sampled_from(RTOL_GRID[:3])), draw(LEVELS)
    share = draw(st.sampled_from([1.0, 0.999, 0.99]))
    cap = None if share == 1.0 else atol + draw(LEVELS)
    return Tolerance(
        rtol=rtol,
        atol=atol,
        floors=draw(BOUNDS),
        sqnr_db=draw(BOUNDS),
        share=share,
        cap=cap,
    )


@given(
    required=st.lists(METRICS, min_size=6, max_size=6),
    quantiles=st.lists(METRICS, min_size=2, max_size=2),
    floors=st.none() | METRICS,
    sqnr=METRICS,
    tight=tolerances(),
    loose=tolerances(),
)
def test_a_tolerance_that_is_not_looser_passes_nothing_more(
    *, required, quantiles, floors, sqnr, tight, loose
):
    # As `compare` records them: the more rtol, the less atol; the larger the share,
    # the larger the quantile; and no quantile beyond the maximum.
    unmeasured = any(math.isnan(atol) for atol in required)  # then all of them are
    required = [NAN] * 6 if unmeasured else sorted(required, reverse=True)
    comparison = measured(
        required_atol=tuple(required),
        max_abs=required[0],
        p99=min(quantiles),
        p999=max(quantiles),
        floor_multiple=floors,
        sqnr_db=sqnr,
    )
    if not tight.is_looser_than(loose):
        passed = judge(comparison, tight, is_output=True).passed
        assert judge(comparison, loose, is_output=True).passed or not passed


def test_schedules_that_differ_are_a_measured_failure():
    assert Outcome.SCHEDULE.measured
    assert not Outcome.SCHEDULE.passed


def test_truths_that_are_read_from_an_output_are_all_the_same():
    order = np.array([[False, True], [False, False]])
    same, other = (
        compare(expected=order, actual=actual, floor_rms=None)
        for actual in (order, order.T)
    )

    assert judge(same, ATOL, is_output=True).passed
    allowed = Tolerance(rtol=1e-4, atol=1.0)
    wrong = judge(other, allowed, is_output=True)
    assert wrong.outcome is Outcome.MISREAD
    assert wrong.reason == "2 of 4 truths are read otherwise"
    assert judge(other, allowed, is_output=True, allow_misread=True).passed
    assert judge(other, allowed, is_output=False).outcome is not Outcome.MISREAD


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_another_id_is_no_small_error(dtype):
    ids = np.array([[49406, 49407], [320, 1125]], dtype)
    same, other = (
        compare(expected=ids, actual=actual, floor_rms=None)
        for actual in (ids, np.array([[49406, 49400], [320, 1125]], dtype))
    )
    allowed = TIERS["quantized"]["outputs"]
    (recorded,) = from_columns(json.loads(json.dumps(to_columns([other]))))
    wrong = judge(recorded, allowed, is_output=True)

    assert judge(same, allowed, is_output=True).passed
    assert wrong.outcome is Outcome.MISREAD
    assert wrong.reason.startswith("49400 at [0, 1], expected 49407: another id")
    assert judge(other, allowed, is_output=True, allow_misread=True).passed
    assert judge(other, allowed, is_output=False).passed


def test_amounts_in_few_bits_are_judged_by_their_size():
    pixels = np.array([[12, 250], [31, 77]], np.uint8)
    rounded = compare(expected=pixels, actual=pixels + np.uint8(1), floor_rms=None)
    assert judge(rounded, TIERS["quantized"]["outputs"], is_output=True).passed
