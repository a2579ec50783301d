"""The numbers that `compare` measures are equal to NumPy's in float64."""

import json
import math
import sys
import time

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.core.comparison import RTOL_GRID, to_columns
from harness.core.errors import SpecError
from harness.core.program import ended
from harness.core.received import DamagedError
from harness.core.record_form import from_columns
from harness.measure.compare import EXACT_QUANTILES, UNIT_ROUNDOFF, compare

SHAPES = hnp.array_shapes(max_dims=4, max_side=7)
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
FLOAT64 = st.floats(-1e150, 1e150)  # whose squares stay finite
ANY_FLOAT32 = st.floats(width=32)
BIN_WIDTH = 2.0**-4  # of the kernel's histogram: four bits of mantissa
quick = settings(max_examples=150, deadline=None)


def pairs(dtype, elements):
    """Draw two arrays of one shape; often nearly equal, as parity runs are."""

    def beside(expected):
        noise = hnp.arrays(dtype, expected.shape, elements=st.floats(-1, 1, width=16))
        scale = st.sampled_from([0.0, 1e-6, 1e-3, 0.5, 2.0**-140])
        others = st.builds(disturbed, st.just(expected), noise, scale)
        anything = hnp.arrays(dtype, expected.shape, elements=elements)
        return st.tuples(st.just(expected), st.one_of(anything, others))

    def disturbed(expected, noise, scale):
        with np.errstate(all="ignore"):
            other = (expected + noise * scale * expected).astype(dtype)
        # Finite values stay finite, so that what `elements` leaves out stays out.
        return np.where(np.isfinite(expected) & ~np.isfinite(other), expected, other)

    return hnp.arrays(dtype, SHAPES, elements=elements).flatmap(beside)


def noisy(shape, *, seed=0, scale=1e-4):
    draw = np.random.default_rng(seed)
    expected = draw.standard_normal(shape, dtype=np.float32)
    noise = draw.standard_normal(shape, dtype=np.float32)
    return expected, expected + np.float32(scale) * noise


def near(value):
    return pytest.approx(value, rel=1e-12, abs=0.0)


def plain(expected, actual):
    """Take the error and the size of expected the slow way, of finite pairs."""
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = left[finite], right[finite]
    return right - left, left, right


def excesses(expected, actual):
    """Take the largest excess over each rtol the slow way, of finite pairs."""
    error, size, _ = plain(expected, actual)
    return tuple(
        max(0.0, float((abs(error) - rtol * abs(size)).max())) for rtol in RTOL_GRID
    )


@quick
@given(pair=pairs(np.float32, FLOAT32))
def test_required_atol_is_the_largest_excess_over_each_rtol(pair):
    expected, actual = pair
    comparison = compare(expected=expected, actual=actual)
    assert comparison.required_atol == excesses(expected, actual)


@quick
@given(
    pair=st.one_of(pairs(np.float32, FLOAT32), pairs(np.float64, FLOAT64)),
    rung=st.integers(0, 5),
    factor=st.sampled_from([0.0, 0.5, 1 - 1e-9, 1 + 1e-9, 2.0]),
)
def test_required_atol_agrees_with_allclose_in_float64(pair, rung, factor):
    expected, actual = (side.astype(np.float64) for side in pair)
    rtol = RTOL_GRID[rung]
    required = compare(expected=pair[0], actual=pair[1]).required_atol[rung]
    # The two statements round differently: apart from that, on either side of equal.
    atol = required * factor
    slack = 1e-12 * rtol * float(abs(expected).max())
    assume(required == 0.0 == slack or abs(atol - required) > slack)
    # numpy scales rtol by its second argument: that has to be the reference.
    close = bool(np.allclose(actual, expected, rtol=rtol, atol=atol))
    assert close == (required <= atol)


@pytest.mark.parametrize("growth", [0.0, 2e-7, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("scale", [1e-42, 1e-4, 1e30, 5e36])
def test_required_atol_keeps_the_largest_of_many_blocks(growth, scale):
    # Ever larger by a hair: no block may be left out because it is nearly as large.
    expected, actual = noisy((50, 3000), scale=1e-2)
    grow = scale * (1 + growth * np.arange(50)[:, None])
    expected, actual = (
        (side[:1] * grow).astype(np.float32) for side in (expected, actual)
    )
    comparison = compare(expected=expected, actual=actual)
    assert comparison.required_atol == excesses(expected, actual)
    worst = np.unravel_index(abs(actual - expected.astype(float)).argmax(), (50, 3000))
    assert comparison.worst_index == worst


@pytest.mark.parametrize("rung", range(len(RTOL_GRID)))
def test_required_atol_sees_a_later_excess_at_one_rtol_alone(rung):
    # The first place has the most at smaller rtol, and the others nothing at larger.
    # The last one has a hundredth more than the second.
    expected, error = np.zeros((2, 30_000))
    if rung == 0:
        places = (0.0, 1.0), (2.0 / RTOL_GRID[1], 2.0), (2.0 / RTOL_GRID[1], 2.02)
    else:
        size = 0.1 / RTOL_GRID[rung]
        places = (10 * size, 1.0), (size, 0.5), (size, 0.505)
    for place, (size, apart) in zip((0, 20_000, 25_000), places, strict=True):
        expected[place], error[place] = size, apart
    actual = (expected + error).astype(np.float32)
    expected = expected.astype(np.float32)
    first = compare(expected=expected[:9000], actual=actual[:9000]).required_atol
    both = compare(expected=expected, actual=actual).required_atol
    assert both == excesses(expected, actual)
    assert [i for i in range(len(both)) if both[i] > first[i]] == [rung]


def test_required_atol_sees_one_subnormal_excess_among_large_values():
    expected = np.full(5000, 1e30, np.float32)
    actual = expected.copy()
    actual[0] = 1.005e30  # raises what is required at every rtol but the last
    # 0.71 of the smallest number rounds to 1 of it, which is all of this error.
    expected[4000], actual[4000] = 71 * 2.0**-149, 72 * 2.0**-149
    error, size, _ = plain(expected, actual)
    required = compare(expected=expected, actual=actual).required_atol[-1]
    assert required == (abs(error) - 1e-2 * size).max() > 0.0


@quick
@given(pair=pairs(np.float32, ANY_FLOAT32), data=st.data())
def test_memory_layout_does_not_matter(pair, data):
    order = data.draw(st.permutations(range(pair[0].ndim)))

    def strided(array):  # same values, another layout, not contiguous, read-only
        spread = np.zeros((*(array.shape[axis] for axis in order), 2), array.dtype)
        spread[..., 0] = array.transpose(order)
        view = spread[..., 0].transpose(np.argsort(order))
        view.flags.writeable = False
        return view

    expected, actual = pair
    plainly = compare(expected=expected, actual=actual)
    again = compare(expected=strided(expected), actual=strided(actual))
    assert repr(again) == repr(plainly)
    swapped = compare(expected=expected.astype(">f4"), actual=actual)
    assert swapped.required_atol == plainly.required_atol or math.isnan(swapped.rms)


@quick
@given(pair=pairs(np.float32, ANY_FLOAT32))
@example(pair=(np.array([np.inf, 1], "f4"), np.array([-np.inf, 1], "f4")))
def test_nonfinite_pairs_are_counted_and_left_out_of_the_rest(pair):
    expected, actual = pair
    comparison = compare(expected=expected, actual=actual)
    error, size, _ = plain(expected, actual)

    def kinds(array):
        return np.select(
            [np.isnan(array), array == np.inf, array == -np.inf], [1, 2, 3]
        )

    assert comparison.count == expected.size
    assert comparison.finite_count == error.size
    assert comparison.nonfinite_expected == np.sum(~np.isfinite(expected))
    assert comparison.nonfinite_actual == np.sum(~np.isfinite(actual))
    differ = np.sum(kinds(expected) != kinds(actual))
    assert comparison.nonfinite_mismatched == differ
    if error.size:
        assert comparison.max_abs == abs(error).max()
        assert comparison.expected_rms == pytest.approx(np.sqrt(np.mean(size**2)))
    else:
        assert math.isnan(comparison.max_abs)


def test_nan_on_both_sides_is_counted_not_equal():
    values = np.array([np.nan, 1.0], np.float32)
    comparison = compare(expected=values, actual=values)
    assert (comparison.nonfinite_expected, comparison.nonfinite_actual) == (1, 1)
    assert comparison.nonfinite_mismatched == 0
    assert (comparison.finite_count, comparison.worst_index) == (1, (1,))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_nan_in_a_large_array_leaves_every_other_number_as_it_was(dtype):
    expected, actual = (side.astype(dtype) for side in noisy((3, 5, 4111)))
    clean = compare(expected=expected, actual=actual)
    place = (1, 2, 3456)
    assert clean.worst_index != place
    actual[place] = np.nan
    spoilt = compare(expected=expected, actual=actual)
    error, _, _ = plain(expected, actual)
    assert (spoilt.nonfinite_actual, spoilt.nonfinite_mismatched) == (1, 1)
    assert spoilt.worst_index == clean.worst_index
    assert spoilt.required_atol == clean.required_atol
    assert spoilt.rms == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)


def test_all_nan_measures_nothing_and_names_no_place():
    values = np.full((2, 3, 4), np.nan, np.float32)
    comparison = compare(expected=values, actual=values, floor_rms=1.0)
    assert (comparison.count, comparison.finite_count) == (24, 0)
    assert math.isnan(comparison.rms)
    assert math.isnan(comparison.required_atol[0])
    assert comparison.worst_index is None
    assert comparison.worst_item is None
    assert comparison.floor_multiple is not None
    assert math.isnan(comparison.floor_multiple)


def test_a_row_against_a_column_is_a_shape_difference():
    comparison = compare(expected=np.ones((4, 1)), actual=np.ones((1, 4)))
    assert comparison.expected_shape == (4, 1)
    assert comparison.actual_shape == (1, 4)
    assert comparison.count == 0
    assert math.isnan(comparison.max_abs)
    assert math.isnan(comparison.cosine_distance)
    assert all(math.isnan(atol) for atol in comparison.required_atol)


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (0, 4, 5, 6)])
def test_an_empty_pair_counts_nothing(shape):
    comparison = compare(expected=np.ones(shape), actual=np.ones(shape))
    assert comparison.count == 0
    assert math.isnan(comparison.rms)
    assert not comparison.expected_constant


NUMBERS = [
    ("u1", 2, "u1", 1, -1.0),  # it does not wrap
    ("u1", 1, "u1", 2, 1.0),
    ("f2", -60000, "f2", 60000, 119936.0 + 64),
    ("?", True, "?", False, -1.0),
    ("i8", 2**53, "i8", 2**53 + 1, 1.0),
    ("i8", -(2**63), "i8", 2**63 - 1, 2.0**64),
    ("u8", 2**64 - 1, "u8", 2**64 - 2, -1.0),
    ("u8", 2**63 + 1, "i8", -1, -(2.0**63) - 2),
    ("i4", 2**24, "i4", 2**24 + 1, 1.0),
    ("f4", 3e38, "f4", -3e38, -2 * float(np.float32(3e38))),  # it does not overflow
    ("f8", 1.0, "f8", 1.0 + 2**-50, 2**-50),
    ("f4", 1.0, "f8", 1.0 + 2**-50, 2**-50),
]


@pytest.mark.parametrize(("left", "one", "right", "two", "error"), NUMBERS)
def test_the_error_is_exact_in_every_kind_of_number(left, one, right, two, error):
    expected, actual = np.array([one], left), np.array([two], right)
    comparison = compare(expected=expected, actual=actual)
    assert comparison.bias == error
    assert comparison.max_abs == comparison.p99 == abs(error)
    assert comparison.worst_expected == expected[0]
    assert comparison.worst_actual == actual[0]


def test_the_worst_values_keep_integers_beyond_a_float():
    comparison = compare(
        expected=np.array([2**62 + 1], "i8"), actual=np.array([2**62], "i8")
    )
    assert comparison.worst_expected == 2**62 + 1
    assert isinstance(comparison.worst_expected, int)


@pytest.mark.parametrize("dtype", [np.complex64, object, "U3", "datetime64[s]"])
def test_a_kind_that_cannot_be_measured_is_refused(dtype):
    with pytest.raises(SpecError, match="actual values are"):
        compare(expected=np.ones(2), actual=np.zeros(2, dtype))


@pytest.mark.parametrize("floor_rms", [-1.0, math.nan])
def test_a_noise_floor_that_is_none_is_refused(floor_rms):
    with pytest.raises(SpecError, match="floor_rms"):
        compare(expected=np.ones(2), actual=np.ones(2), floor_rms=floor_rms)


def test_the_sides_cannot_be_given_by_position():
    with pytest.raises(TypeError):
        compare(np.ones(2), np.ones(2))  # type: ignore[call-arg]  # the claim


def test_one_zeroed_channel_of_many_is_located():
    expected, _ = noisy((2, 320, 8, 8))
    actual = expected.copy()
    actual[:, 137] = 0.0
    comparison = compare(expected=expected, actual=actual)
    assert comparison.worst_channel == 137
    rms = np.sqrt(np.mean(expected[:, 137].astype(np.float64) ** 2))
    assert comparison.worst_channel_rms == pytest.approx(rms, rel=1e-12)
    assert comparison.worst_index is not None
    assert comparison.worst_index[1] == 137
    assert comparison.rms < 0.1 * rms


@pytest.mark.parametrize("shape", [(3, 64), (3, 40, 7), (3, 4, 33, 5), (3, 2, 5000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_wrong_batch_item_is_located(shape, dtype):
    expected, actual = (side.astype(dtype) for side in noisy(shape))
    actual[1] += dtype(0.01)
    comparison = compare(expected=expected, actual=actual)
    error = actual[1].astype(np.float64) - expected[1].astype(np.float64)
    assert comparison.worst_item == 1
    assert comparison.worst_item_rms == pytest.approx(
        np.sqrt(np.mean(error**2)), rel=1e-12
    )


@quick
@given(pair=pairs(np.float32, ANY_FLOAT32))
def test_worst_item_and_channel_agree_with_numpy(pair):
    expected, actual = pair
    comparison = compare(expected=expected, actual=actual)
    assume(comparison.finite_count)
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    with np.errstate(invalid="ignore"):
        squared = np.where(finite, right - left, 0.0) ** 2

    def largest(axis):
        other = tuple(i for i in range(expected.ndim) if i != axis)
        count = finite.sum(axis=other)
        return np.sqrt((squared.sum(axis=other) / np.maximum(count, 1)).max())

    assert comparison.worst_item_rms == pytest.approx(largest(0), rel=1e-12)
    if expected.ndim > 2:
        assert comparison.worst_channel_rms == pytest.approx(largest(1), rel=1e-12)
    else:
        assert comparison.worst_channel is None
        assert comparison.worst_channel_rms is None


def test_the_worst_item_is_found_by_its_finite_pairs_in_every_block():
    expected = np.zeros((2, 20_000), np.float32)
    actual = np.ones_like(expected)
    actual[1] = np.nan
    actual[1, ::4] = 1.5
    comparison = compare(expected=expected, actual=actual)
    assert (comparison.worst_item, comparison.worst_item_rms) == (1, 1.5)


def test_the_first_of_equal_errors_is_the_worst():
    expected = np.zeros((4, 5000), np.float32)
    actual = expected.copy()
    actual[1, 4999] = actual[2, 7] = -0.5
    actual[0, 3] = 0.25
    comparison = compare(expected=expected, actual=actual)
    assert comparison.worst_index == (1, 4999)
    assert (comparison.worst_expected, comparison.worst_actual) == (0.0, -0.5)


@pytest.mark.parametrize("share", [0.99, 0.999])
@pytest.mark.parametrize("count", [1, 2, 99, 1000, 1001, 70_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quantiles_are_conservative_and_within_a_bin_of_numpy(share, count, dtype):
    expected, actual = (side.astype(dtype) for side in noisy(count, seed=count))
    comparison = compare(expected=expected, actual=actual)
    error, _, _ = plain(expected, actual)
    measured = {0.99: comparison.p99, 0.999: comparison.p999}[share]
    above = np.quantile(abs(error), share, method="higher")
    assert np.quantile(abs(error), share) <= measured <= above * (1 + BIN_WIDTH)
    assert measured <= comparison.max_abs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quantiles_are_of_finite_pairs_alone(dtype):
    expected, actual = (side.astype(dtype) for side in noisy(5000))
    few = compare(expected=expected[::50].copy(), actual=actual[::50].copy())
    mostly = np.full_like(actual, np.nan)
    mostly[::50] = actual[::50]
    comparison = compare(expected=expected, actual=mostly)
    assert (comparison.p99, comparison.p999) == (few.p99, few.p999)


def test_quantiles_of_a_large_pair_are_estimated_from_a_sample():
    expected, actual = noisy((2, 3, EXACT_QUANTILES // 4))
    comparison = compare(expected=expected, actual=actual)
    error, _, _ = plain(expected, actual)
    for share, measured in ((0.99, comparison.p99), (0.999, comparison.p999)):
        exact = np.quantile(abs(error), share)
        assert 0.97 * exact < measured < exact * (1.03 + BIN_WIDTH)


def test_a_single_wrong_element_moves_the_maximum_and_no_quantile():
    expected, _ = noisy((4, 5000))
    actual = expected.copy()
    actual[3, 21] += 1.0
    comparison = compare(expected=expected, actual=actual)
    assert comparison.p99 == comparison.p999 == 0.0
    assert comparison.worst_index == (3, 21)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1,), (7,), (1000, 3), (2, 3, 4, 5), (3, 130, 129), (2, 1_100_001)]
)
def test_sums_agree_with_numpy_in_float64(shape, dtype):
    expected, actual = (side.astype(dtype) for side in noisy(shape, seed=3))
    comparison = compare(expected=expected, actual=actual)
    error, left, right = plain(expected, actual)
    power = np.dot(error, error)
    assert comparison.rms == near(np.sqrt(power / error.size))
    assert comparison.expected_rms == near(np.sqrt(np.mean(left**2)))
    assert comparison.bias == pytest.approx(
        math.fsum(error) / error.size, rel=0, abs=1e-12 * np.mean(abs(error))
    )
    norms = np.linalg.norm(left), np.linalg.norm(right)
    assert comparison.norm_ratio == near(norms[1] / norms[0])
    assert comparison.cosine == near(np.dot(left, right) / (norms[0] * norms[1]))
    assert comparison.sqnr_db == near(10 * np.log10(np.dot(left, left) / power))


@pytest.mark.parametrize("value", [0.0, -3.5, np.nan, np.inf])
def test_one_value_everywhere_is_constant(value):
    constant = np.full((2, 700_000), value, np.float32)
    varied = constant.copy()
    varied[1, 123_456] = 1.0
    comparison = compare(expected=constant, actual=varied)
    assert comparison.expected_constant
    assert not comparison.actual_constant


def test_one_element_is_no_evidence_of_a_constant():
    comparison = compare(expected=np.array(1.0), actual=np.array(1.0))
    assert not comparison.expected_constant
    assert comparison.count == 1
    assert (comparison.worst_index, comparison.worst_item) == ((), None)


@pytest.mark.parametrize(
    ("expected", "actual", "cosine", "norm_ratio", "sqnr_db"),
    [
        pytest.param(0.0, 0.0, 1.0, 1.0, math.inf, id="both-zero"),
        pytest.param(0.0, 1.0, 0.0, math.inf, -math.inf, id="expected-zero"),
        pytest.param(1.0, 0.0, 0.0, 0.0, 0.0, id="actual-zero"),
        pytest.param(1.0, -1.0, -1.0, 1.0, -10 * math.log10(4), id="negated"),
    ],
)
def test_zeros_have_their_own_rules(expected, actual, cosine, norm_ratio, sqnr_db):
    comparison = compare(
        expected=np.full((3, 4), expected, np.float32),
        actual=np.full((3, 4), actual, np.float32),
    )
    assert comparison.cosine == cosine
    assert comparison.norm_ratio == norm_ratio
    assert comparison.sqnr_db == sqnr_db


@pytest.mark.parametrize(
    ("expected", "error", "floor_rms", "multiple"),
    [
        pytest.param(1.0, 0.5, 0.25, 2.0, id="known-floor"),
        pytest.param(1.0, 0.5, 0.0, 0.5 / UNIT_ROUNDOFF, id="at-least-the-roundoff"),
        pytest.param(0.0, 0.0, 0.0, 0.0, id="nothing-over-nothing"),
        pytest.param(0.0, 0.5, 0.0, math.inf, id="something-over-nothing"),
        pytest.param(1.0, 0.5, None, None, id="unknown-floor"),
    ],
)
def test_the_error_is_quoted_in_noise_floors(expected, error, floor_rms, multiple):
    left = np.full(3, expected, np.float32)
    comparison = compare(
        expected=left, actual=left + np.float32(error), floor_rms=floor_rms
    )
    assert comparison.floor_multiple == multiple


@quick
@given(pair=pairs(np.float32, ANY_FLOAT32), floor=st.sampled_from([None, 0.0, 1e-7]))
@example(pair=(np.ones((2, 0)), np.ones((2, 0))), floor=0.0)
@example(pair=(np.ones((2, 0)), np.ones(3)), floor=0.0)
def test_json_brings_back_every_field(pair, floor):
    comparison = compare(expected=pair[0], actual=pair[1], floor_rms=floor)
    text = json.dumps(to_columns([comparison]), allow_nan=False)
    # repr, because NaN is not equal to itself
    assert repr(list(from_columns(json.loads(text)))) == repr([comparison])


def test_json_of_another_version_is_refused():
    data = to_columns([compare(expected=np.ones(2), actual=np.ones(2))])
    data["bogus"] = data.pop("rms")
    with pytest.raises(DamagedError, match="`bogus`"):
        list(from_columns(data))


def test_inputs_are_left_as_they_were():
    expected, actual = noisy((2, 3000))
    expected[1, 5] = np.nan
    before = expected.tobytes(), actual.tobytes()
    compare(expected=expected, actual=actual)
    wide = expected.astype(np.float64)
    wide_before = wide.tobytes()
    compare(expected=wide, actual=wide)
    assert (expected.tobytes(), actual.tobytes()) == before
    assert wide.tobytes() == wide_before
    assert expected.flags.writeable


@pytest.mark.alone
def test_a_large_array_is_compared_faster_than_by_allclose():
    # Measured: 5 to 6 times as fast; 1.7 times where one loop is not vectorised, and
    # 3.2 times with the instructions that every x86 has.
    expected, actual = noisy((4096, 4096))

    def seconds(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    rounds = [
        (
            seconds(lambda: np.allclose(actual, expected)),
            seconds(lambda: compare(expected=expected, actual=actual)),
        )
        for _ in range(7)
    ]

    plain_s, ours_s = map(min, zip(*rounds, strict=True))
    assert plain_s > 2.2 * ours_s


ERRORS = """
import numpy as np
from harness.measure.compare import compare
draw = np.random.default_rng(1).standard_normal
for size in [(2, 320), (1, 64, 16, 16), (2, 128, 8, 8), (16, 77, 77), (2, 1, 1000)]:
    for dtype in (np.float32, np.float64):
        for _ in range(20):
            expected = draw(size).astype(dtype)
            actual = (expected + 1e-4 * draw(size)).astype(dtype)
            print(compare(expected=expected, actual=actual).worst_item_rms.hex())
"""


def test_a_process_that_compiles_gives_the_numbers_of_one_that_loads(tmp_path):
    env = {"NUMBA_CACHE_DIR": str(tmp_path)}
    compiles, loads = (
        ended([sys.executable, "-c", ERRORS], env=env, limit_s=300) for _ in range(2)
    )
    assert compiles.code == 0, compiles.text
    assert list(tmp_path.rglob("*.nbc"))
    assert compiles.text == loads.text
