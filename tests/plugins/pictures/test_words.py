"""What the screen and the page say of a picture: its error, its step, its cause."""

import json
import math
from dataclasses import asdict, replace

import msgspec
import numpy as np
import pytest

from harness.core.comparison import Picture
from harness.core.end_to_end import AppSetting
from harness.core.record import CaseRecord, Row
from harness.core.text import screen
from harness.measure.attribution import Attribution, RoleShare
from harness.measure.compare import compare
from harness.plugins.pictures.words import attribution_of, picture_words, pipeline_lines
from tests.unit import reports

PARTS = {
    "text_encoder": RoleShare(alone=0.5, without=2.0, share=0.05),
    "unet": RoleShare(alone=1.75, without=0.75, share=0.8),
    "vae_decoder": RoleShare(alone=0.625, without=1.875, share=0.125),
}
FOUND = Attribution(rms=2.0, parts=PARTS, interaction=0.025)
ROLES = {"text_encoder": "mnn/fp32", "unet": "mnn/fp32", "vae_decoder": "pytorch"}


def row(probe, expected, actual, *, op, what="latents", floor=1e-3):
    """One comparison of a pipeline, as `diffusion.measure` makes it."""
    return Row(
        sample="pipeline",
        what=what,
        probe=probe,
        position=0,
        op=op,
        module=probe,
        source="",
        parents=(),
        comparison=compare(expected=expected, actual=actual, floor_rms=floor),
    )


def step(curve, number, floors):
    """A step that is so many noise floors off."""
    expected = np.linspace(-1.0, 1.0, 16, dtype=np.float32)
    actual = expected.astype(np.float64) + floors * 1e-3
    return row(f"{curve}.{number:02}", expected, actual, op=curve)


def curve(name, *errors):
    return [step(name, number, floors) for number, floors in enumerate(errors)]


def measured(off, **about):
    """What is measured of a picture that is off by so many levels everywhere."""
    psnr = math.inf if off == 0 else 20 * math.log10(255 / off)
    numbers = {
        "expected_peak": 200.0,
        "actual_peak": 200.0 + off,
        "expected_spread": 150.0,
        "actual_spread": 150.0,
        "mean_abs": float(off),
        "psnr_db": psnr,
        "ssim": 0.98765,
        "perceptual": None,
        "perceptual_by": "not measured, flip-evaluator is not installed",
    }
    return Picture(**{**numbers, **about})


def picture(off, number=0, **about):
    expected = np.full((4, 4, 3), 100.0, dtype=np.float32)
    made = row(
        f"picture.{number}", expected, expected + off, op="picture", what="image"
    )
    seen = msgspec.structs.replace(made.comparison, picture=measured(off, **about))
    return replace(made, comparison=seen)


def broken(number=0):
    about = {"psnr_db": math.nan, "ssim": math.nan, "mean_abs": math.nan}
    return picture(math.nan, number, perceptual_by="not finite", **about)


def of_another_size(number=0):
    expected, actual = np.zeros((4, 4, 3)), np.zeros((4, 8, 3))
    return row(f"picture.{number}", expected, actual, op="picture", what="image")


def record(*rows, **chain):
    return reports.record(
        *rows, case="text2img/mnn/fp32", pipeline={"roles": ROLES, **chain}
    )


def blamed(*rows, found=FOUND):
    return record(*rows, attribution=found.to_json())


def lines(made):
    return [line.text for line in screen(pipeline_lines(made))]


def test_a_components_case_has_no_picture():
    assert picture_words(reports.record(reports.row("conv", 3.0))) == ""
    assert picture_words(record(*curve("free-running", 1.0))) == ""


def test_how_far_a_picture_is_off_and_by_whom():
    words = picture_words(blamed(picture(2.0)))
    assert words == "picture 42.1 dB, off by 2 of 255 · 80% from unet"


def test_the_worst_of_several_pictures_counts():
    words = picture_words(record(picture(0.0), picture(4.0, 1), picture(2.0, 2)))
    assert words == "picture 36.1 dB, off by 4 of 255"


def test_no_role_is_blamed_for_rounding():
    # 60 dB are 0.255 levels.
    assert picture_words(blamed(picture(0.25))) == "picture 60.2 dB"
    assert picture_words(blamed(picture(0.26))).endswith("80% from unet")


@pytest.mark.parametrize(("share", "named"), [(0.95, True), (0.3, True), (0.05, False)])
def test_a_setting_of_the_app_is_named_however_small_its_error_is(share, named):
    setting = AppSetting(
        name="scaling_factor", app=0.13025, own=0.18215, place="vae", share=share
    )
    words = picture_words(record(picture(0.2), app=[asdict(setting)]))
    assert words.startswith("picture 62.1 dB")
    assert (setting.words in words) is named


def test_equal_pictures_are_equal():
    assert picture_words(blamed(picture(0.0), picture(0.0, 1))) == "picture equal"


def test_a_picture_that_is_not_finite_is_worst_and_somebody_broke_it():
    parts = {**PARTS, "unet": RoleShare(alone=math.inf, without=1.0, share=1.0)}
    found = Attribution(rms=math.inf, parts=parts, interaction=0.0)
    for rows in ((picture(1.0), broken(1)), (broken(), picture(1.0, 1))):
        words = picture_words(blamed(*rows, found=found))
        assert words == "picture not finite · 100% from unet"


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((of_another_size(),), id="alone"),
        pytest.param((picture(0.0), of_another_size(1)), id="beside-an-equal-one"),
        pytest.param((of_another_size(), picture(2.0, 1)), id="before-another"),
    ],
)
def test_a_picture_of_another_size_is_not_passed_over(rows):
    words = picture_words(record(*rows))
    assert "not finite" not in words
    assert "equal" not in words
    assert "dB" not in words
    assert words.startswith("picture")


PERCEPTUAL = {"perceptual": 0.0123, "perceptual_by": "FLIP 1.6"}
MADE = {
    "nothing": record(growth=None, pictures=[], signature=""),
    "all": record(
        *curve("teacher-forced", 1.5, 12.0, 100.0),
        *curve("free-running", 0.0, 12.0, 10_000.0),
        picture(2.0),
        picture(2.0, 3, **PERCEPTUAL, expected_read="7", actual_read="1"),
        growth=1.5,
        guidance=[1.0, 4.25, 3.0],
        signature="the halves of the guidance batch are exchanged",
        pictures=[f"pictures/a/{n}-difference-x8.png" for n in range(2)],
        attribution=FOUND.to_json(),
    ),
    "broken": record(*curve("free-running", 2.0, math.nan), of_another_size()),
}


@pytest.mark.parametrize("name", MADE)
def test_a_pipeline_has_these_lines(name, snapshot):
    assert "\n".join(lines(MADE[name])) == snapshot


def test_what_is_wrong_stands_out():
    bad = [line for line in screen(pipeline_lines(MADE["all"])) if line.tone == "bad"]
    assert [line.text.strip() for line in bad] == [
        "the halves of the guidance batch are exchanged"
    ]


def test_a_record_is_read_as_it_was_written():
    parts = {**PARTS, "unet": RoleShare(alone=math.inf, without=1.0, share=1.0)}
    found = Attribution(rms=math.inf, parts=parts, interaction=0.0)
    made = record(
        *curve("free-running", 1.0, 10.0),
        picture(2.0),
        growth=1.5,
        guidance=[1.0, 2.0],
        signature="",
        pictures=["pictures/a/0.png"],
        timesteps=[501.0, 1.0],
        attribution=found.to_json(),
    )

    text = json.dumps(made.to_json(), allow_nan=False)
    read = CaseRecord.from_json(json.loads(text))

    assert read.rows == made.rows
    assert lines(read) == lines(made)
    assert picture_words(read) == picture_words(made)
    assert attribution_of(read) == found
