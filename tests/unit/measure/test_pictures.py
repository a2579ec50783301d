"""Pictures are measured unrounded, and a picture without content never passes."""

from __future__ import annotations

import json
import math
import sys

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from harness.core.comparison import Comparison, to_columns
from harness.core.errors import SpecError
from harness.core.outcome import Outcome
from harness.core.received import DamagedError
from harness.core.record_form import from_columns
from harness.judge.tolerance import TIERS, Tolerance
from harness.judge.value import judge
from harness.measure.pictures import (
    GAP_PX,
    compare_pictures,
    eight_bits,
    png,
    side_by_side,
)

SIZE = 24
LOOSEST = TIERS["quantized"]["image"]


def picture(seed=0, low=20.0, high=230.0):
    """Soft random levels."""
    rng = np.random.default_rng(seed)
    small = rng.uniform(low, high, (6, 6, 3)).astype(np.float32)
    return cv2.resize(small, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)


def one_colour(*rgb):
    return np.full((SIZE, SIZE, 3), rgb, dtype=np.float32)


def outcome(expected, actual, tolerance=LOOSEST, **allowed):
    compared = compare_pictures(expected=expected, actual=actual)
    return judge(compared, tolerance, is_output=False, **allowed).outcome


def test_psnr_and_ssim_are_those_of_the_field():
    one = picture()
    two = one + np.random.default_rng(1).normal(0, 4, one.shape).astype(np.float32)

    seen = compare_pictures(expected=one, actual=two).picture

    assert seen is not None
    psnr = peak_signal_noise_ratio(one.astype(float), two.astype(float), data_range=255)
    assert seen.psnr_db == pytest.approx(psnr, abs=1e-6)
    window = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    assert seen.ssim == pytest.approx(
        structural_similarity(one, two, channel_axis=-1, data_range=255, **window),
        abs=1e-5,
    )
    assert seen.mean_abs == pytest.approx(np.abs(one - two).mean(), rel=1e-6)
    assert seen.perceptual is not None
    assert 0 < seen.perceptual < 1
    assert seen.perceptual_by.startswith("FLIP ")


def test_equal_pictures_are_equal_by_every_measure():
    seen = compare_pictures(expected=picture(), actual=picture()).picture
    assert seen is not None
    assert (seen.psnr_db, seen.ssim, seen.mean_abs) == (math.inf, 1.0, 0.0)
    assert seen.perceptual == 0.0


@settings(max_examples=50, deadline=None)
@given(
    pair=st.tuples(
        *[hnp.arrays(np.float32, (12, 13, 3), elements=st.floats(0, 255, width=32))] * 2
    )
)
def test_psnr_is_20_log10_of_255_over_the_rms(pair):
    one, two = (side.astype(np.float64) for side in pair)
    rms = math.sqrt(np.mean((two - one) ** 2))
    seen = compare_pictures(expected=pair[0], actual=pair[1]).picture
    assert seen is not None
    assert seen.psnr_db == (
        pytest.approx(20 * math.log10(255 / rms), abs=1e-6) if rms else math.inf
    )
    assert -1 <= seen.ssim <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_a_wrap_around_of_bytes_cannot_happen(dtype):
    one, two = one_colour(250, 0, 0).astype(dtype), one_colour(5, 0, 0).astype(dtype)
    seen = compare_pictures(expected=one, actual=two)
    assert seen.max_abs == 245
    assert seen.picture is not None
    assert seen.picture.mean_abs == pytest.approx(245 / 3)
    assert (side_by_side(one, two)[0][:, -SIZE:, 0] == 245).all()


def test_a_difference_far_below_a_level_is_measured():
    one = picture()
    seen = compare_pictures(expected=one, actual=one + np.float32(0.001))
    assert seen.max_abs == pytest.approx(0.001, rel=0.02)
    assert seen.picture is not None
    assert 105 < seen.picture.psnr_db < 110


def test_without_its_package_a_distance_is_missing_with_a_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "flip_evaluator", None)
    seen = compare_pictures(expected=picture(), actual=picture(1)).picture
    assert seen is not None
    assert seen.perceptual is None
    assert seen.perceptual_by == "not measured, flip-evaluator is not installed"


def test_what_a_reader_sees_is_kept():
    def brightest(levels):
        assert levels.dtype == np.uint8
        return "rgb"[int(levels.mean(axis=(0, 1)).argmax())]

    one, two = picture(), picture() + np.array([0, 0, 200], np.float32)
    seen = compare_pictures(expected=one, actual=two, read=brightest)

    assert seen.picture is not None
    assert seen.picture.actual_read == "b"
    verdict = judge(seen, LOOSEST, is_output=False)
    assert verdict.outcome is Outcome.MISREAD
    assert verdict.reason.startswith("read as 'b', expected ")


@pytest.mark.parametrize(
    ("actual", "found"),
    [
        pytest.param(one_colour(0, 0, 0), Outcome.BLACK, id="black"),
        pytest.param(one_colour(0.9, 0.2, 0.4), Outcome.BLACK, id="nearly-black"),
        pytest.param(one_colour(200, 30, 40), Outcome.CONSTANT, id="red"),
        pytest.param(one_colour(255, 255, 255), Outcome.CONSTANT, id="white"),
        pytest.param(one_colour(np.nan, 1, 1), Outcome.NONFINITE, id="nan"),
    ],
)
def test_a_picture_without_content_has_its_own_outcome_on_either_side(actual, found):
    assert outcome(picture(), actual) is found
    assert outcome(actual, picture()) is found


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_picture_with_nothing_finite_is_measured_as_far_as_it_goes(value):
    broken = one_colour(value, value, value)

    for pair in ((picture(), broken), (broken, picture()), (broken, broken)):
        seen = compare_pictures(expected=pair[0], actual=pair[1])
        side_by_side(*pair)

        assert seen.picture is not None
        numbers = (seen.picture.psnr_db, seen.picture.ssim, seen.picture.mean_abs)
        assert all(map(math.isnan, numbers))
        assert (seen.picture.perceptual, seen.picture.perceptual_by) == (
            None,
            "not finite",
        )
        assert judge(seen, LOOSEST, is_output=False).outcome is Outcome.NONFINITE


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_finite_is_black_though_the_rest_may_be_not_finite(value):
    black, red = one_colour(0, 0, 0), one_colour(200, 30, 40)
    black[0, 0, 0] = red[0, 0, 0] = value
    exact = TIERS["exact"]["image"]
    assert outcome(black, black, exact, allow_nonfinite=True) is Outcome.BLACK
    assert outcome(red, red, exact, allow_nonfinite=True) is Outcome.CONSTANT


def test_a_picture_that_may_be_not_finite_is_read_all_the_same():
    one = picture()
    one[0, 0, 0] = np.nan
    readings = iter("71")
    seen = compare_pictures(expected=one, actual=one, read=lambda _: next(readings))
    allowed = judge(
        seen, TIERS["exact"]["image"], is_output=False, allow_nonfinite=True
    )
    assert allowed.outcome is Outcome.MISREAD


@pytest.mark.parametrize("bound", [{"psnr_db": 1.0}, {"ssim": -1.0}])
def test_a_bound_of_pictures_fails_what_is_no_picture(bound):
    plain = Comparison(
        expected_shape=(2,),
        actual_shape=(2,),
        expected_dtype="float32",
        actual_dtype="float32",
        count=2,
        finite_count=2,
        max_abs=0.0,
        rms=0.0,
    )

    assert not judge(plain, Tolerance(**bound), is_output=False).passed


def test_another_size_is_a_shape_and_no_picture():
    seen = compare_pictures(expected=picture(), actual=picture()[:-1])
    assert seen.picture is None
    assert judge(seen, LOOSEST, is_output=False).outcome is Outcome.SHAPE


def test_a_picture_smaller_than_a_window_has_no_ssim_and_fails_its_bound():
    one, two = picture()[:8, :8], picture(1)[:8, :8]
    seen = compare_pictures(expected=one, actual=one + (two - one) / 1000)
    assert seen.picture is not None
    assert math.isnan(seen.picture.ssim)
    assert not judge(seen, LOOSEST, is_output=False).passed


@pytest.mark.parametrize("shape", [(0, 8, 3), (8, 0, 3), (0, 0, 3)])
def test_a_picture_without_pixels_is_empty(shape):
    assert outcome(np.zeros(shape), np.zeros(shape)) is Outcome.EMPTY


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 4), (3, 8, 8), (1, 8, 8, 3)])
def test_what_is_no_picture_is_refused(shape):
    with pytest.raises(SpecError, match="A picture is"):
        compare_pictures(expected=np.ones(shape), actual=np.ones(shape))


def test_json_of_another_picture_is_refused():
    data = to_columns([compare_pictures(expected=picture(), actual=picture())])
    data["picture"][0]["bogus"] = data["picture"][0].pop("ssim")
    with pytest.raises(DamagedError, match=r"`ssim` - at `\$.picture\[0\]`"):
        list(from_columns(data))


def test_a_picture_is_written_and_read_back():
    two = picture()
    two[0, 0, 0] = np.inf
    for actual, read in ((picture(1), lambda _: "nan"), (two, None)):
        seen = compare_pictures(expected=picture(), actual=actual, read=read)
        text = json.dumps(to_columns([seen]), allow_nan=False)
        assert repr(list(from_columns(json.loads(text)))) == repr([seen])


def test_three_pictures_stand_side_by_side():
    one, two = picture(), picture() + 3
    shown, amplified = side_by_side(one, two)
    assert shown.shape == (SIZE, 3 * SIZE + 2 * GAP_PX, 3)
    assert amplified == 64  # 3 levels times 64 is as near to 255 as a power of two gets
    np.testing.assert_array_equal(shown[:, :SIZE], eight_bits(one))
    assert (shown[:, -SIZE:] == 192).all()


@pytest.mark.parametrize(
    ("off", "factor"), [(0.0, 1), (200.0, 1), (0.001, 256), (3.0, 64)]
)
def test_a_difference_is_amplified_as_far_as_it_goes(off, factor):
    one = np.zeros((4, 4, 3), dtype=np.float32)
    shown, amplified = side_by_side(one, one + np.float32(off))
    assert amplified == factor
    assert (shown[:, -4:] == round(off * factor)).all()


def test_what_is_not_finite_is_magenta():
    two = picture()
    two[1, 2, 0] = np.nan
    shown, _ = side_by_side(picture(), two)
    assert shown[1, SIZE + GAP_PX + 2].tolist() == [255, 0, 255]


def test_a_file_holds_the_colours_it_was_given():
    red = eight_bits(one_colour(200, 30, 40))
    decoded = cv2.imdecode(np.frombuffer(png(red), np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    assert decoded[0, 0].tolist() == [40, 30, 200]
