"""Drift is reported: an error that moves towards its limit, before it exceeds it."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from harness.commands.tune.drift import drift_lines
from harness.commands.tune.headroom import Headroom
from harness.judge.case import judge_case
from harness.judge.policy import Policy
from harness.measure.pictures import compare_pictures
from tests.unit.reports import output, record

SIXTEEN = "[mnn.fp32]\noutputs = { floors = 16.0 }\nlayers = { floors = 16.0 }\n"
PICTURE = "[mnn.fp32]\nimage = { psnr_db = 45.0, ssim = 0.9 }\n"


def judged(folder, text, made, what="outputs"):
    path = folder / "tolerances.toml"
    path.write_text(text + 'why = "a test"\n')
    policy = Policy.load(path)
    today = date(2026, 11, 21)
    return judge_case(made, what, policy, (), min_coverage=0.5, today=today)


@pytest.mark.parametrize(
    ("floors", "factor", "moved"),
    [
        pytest.param(8.0, 2.0, False, id="as-tuned"),
        pytest.param(12.0, 2.0, True, id="more-than-half-of-it-used"),
        pytest.param(12.0, 1.2, False, id="tuned-with-less-headroom"),
        pytest.param(6.0, 9.0, True, id="tuned-with-more"),
    ],
)
def test_a_check_has_moved_where_half_of_its_headroom_is_used(
    tmp_path, floors, factor, moved
):
    verdict = judged(tmp_path, SIXTEEN, record(output(floors)))

    _, found = drift_lines([verdict], Headroom(factor=factor), "run 1")

    assert found is moved


@pytest.mark.parametrize(
    ("levels", "moved"),
    [pytest.param(1.4, True, id="near"), pytest.param(0.3, False, id="far")],
)
def test_a_picture_near_its_limit_has_moved(tmp_path, levels, moved):
    comparison = picture(levels)
    row = replace(output(0.0), what="image", probe="image", comparison=comparison)
    verdict = judged(tmp_path, PICTURE, record(row), "image")

    lines, found = drift_lines([verdict], Headroom(), "run 1")

    assert comparison.picture.psnr_db > 45.0
    assert found is moved
    assert ("has moved towards its limit" in lines[0].text) is moved


def picture(levels):
    """A comparison of two pictures that are so many levels apart."""
    rng = np.random.default_rng(0)
    expected = rng.uniform(20.0, 235.0, (16, 16, 3)).astype(np.float32)
    apart = rng.choice(np.array([-levels, levels], np.float32), expected.shape)
    return compare_pictures(expected=expected, actual=expected + apart)
