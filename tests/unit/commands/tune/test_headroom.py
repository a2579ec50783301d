"""An extent is within a tolerance exactly if every comparison in it is."""

import json
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace

from harness.core.comparison import RTOL_GRID, to_columns
from harness.core.errors import SpecError
from harness.core.record_form import from_columns
from harness.judge.tolerance import Tolerance
from harness.judge.value import judge
from harness.measure.compare import compare
from harness.measure.pictures import compare_pictures
from harness.plugins.tune.headroom import Headroom, fits, is_sound, needed, worse


@st.composite
def comparisons(draw):
    values = st.floats(-4.0, 4.0, width=32)
    expected = draw(hnp.arrays(np.float32, 6, elements=values))
    noise = draw(hnp.arrays(np.float32, 6, elements=st.floats(-1.0, 1.0, width=32)))
    step = draw(st.sampled_from([0.0, 1e-6, 1e-3, 0.5]))
    floor = draw(st.sampled_from([1e-6, 1e-3]))
    actual = expected + np.float32(step) * noise
    return compare(expected=expected, actual=actual, floor_rms=floor)


TOLERANCES = st.builds(
    Tolerance,
    rtol=st.sampled_from(RTOL_GRID),
    atol=st.sampled_from([0.0, 1e-6, 1e-3, 0.5]),
    floors=st.none() | st.floats(0.1, 1e4),
    sqnr_db=st.none() | st.floats(0.0, 120.0),
    cosine_distance=st.none() | st.sampled_from([0.0, 1e-14, 1e-9, 1e-3, 1.0]),
)


def passes(comparison, tolerance):
    return judge(comparison, tolerance, is_output=False).passed


@given(several=st.lists(comparisons(), min_size=1, max_size=4), tolerance=TOLERANCES)
def test_an_extent_passes_where_all_of_its_comparisons_do(several, tolerance):
    extent = reduce(worse, several)

    assert passes(extent, tolerance) is all(passes(one, tolerance) for one in several)


@given(one=comparisons(), two=comparisons())
def test_the_order_does_not_matter_to_a_bound(one, two):
    tolerance = Tolerance(rtol=1e-3, atol=1.0, floors=1.0, sqnr_db=1.0)

    assert needed(worse(one, two), tolerance) == needed(worse(two, one), tolerance)


@given(one=comparisons(), tolerance=TOLERANCES)
def test_what_passes_with_headroom_passes_without(one, tolerance):
    assert fits(one, tolerance) is passes(one, tolerance)
    assert passes(one, tolerance) or not fits(one, tolerance, Headroom())


@given(one=comparisons(), tolerance=TOLERANCES)
def test_a_record_is_judged_again_as_its_arrays_were(one, tolerance):
    text = json.dumps(to_columns([one]), allow_nan=False)

    (read,) = from_columns(json.loads(text))
    again = judge(read, tolerance, is_output=False)

    first = judge(one, tolerance, is_output=False)
    assert (again.outcome, again.usage) == (first.outcome, first.usage)


def test_a_value_that_is_not_finite_anywhere_gives_no_bound():
    good = compare(expected=np.ones(3, np.float32), actual=np.ones(3, np.float32))
    bad = compare(
        expected=np.ones(3, np.float32), actual=np.full(3, np.nan, np.float32)
    )

    assert is_sound(good)
    assert not is_sound(worse(good, bad))
    assert not is_sound(worse(bad, good))


def picture(levels):
    """A comparison of two pictures that are so many levels apart."""
    rng = np.random.default_rng(0)
    expected = rng.uniform(20.0, 235.0, (16, 16, 3)).astype(np.float32)
    apart = rng.choice(np.array([-levels, levels], np.float32), expected.shape)
    return compare_pictures(expected=expected, actual=expected + apart)


@settings(deadline=None)  # SSIM compiles at its first use
@given(
    levels=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=3),
    tolerance=st.builds(
        Tolerance,
        psnr_db=st.floats(20.0, 60.0),
        ssim=st.none() | st.floats(0.9, 1.0),
    ),
)
def test_pictures_pass_where_the_worst_of_each_number_does(levels, tolerance):
    several = [picture(level) for level in levels]

    extent = reduce(worse, several)

    assert fits(extent, tolerance) is all(fits(one, tolerance) for one in several)


def test_an_error_without_a_floor_cannot_be_stated_in_floors():
    known = compare(expected=np.ones(3), actual=np.full(3, 1.5), floor_rms=1.0)
    unknown = replace(known, floor_rms=None, floor_multiple=None)

    assert worse(known, unknown).floor_multiple is None
    assert needed(worse(known, unknown), Tolerance(floors=9.0)) == {
        "floors": float("inf")
    }


def test_half_of_the_headroom_is_half_of_its_decibels():
    half = Headroom(factor=4.0, decibels=3.0).half

    assert (half.factor, half.decibels) == (2.0, 1.5)


@pytest.mark.parametrize(("factor", "decibels"), [(0.5, 3.0), (2.0, -1.0)])
def test_headroom_that_is_none_is_refused(factor, decibels):
    with pytest.raises(SpecError, match="headroom is a factor of 1 or more"):
        Headroom(factor=factor, decibels=decibels)
