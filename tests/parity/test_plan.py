"""A plan of digits' UNet: nearly int4's size, and pictures that int4 does not reach."""

import re
import shutil

import pytest

from tests.places import DIGITS
from tests.plugin.project import called

pytestmark = pytest.mark.plan

WITHIN_DB = 36.0
WITHIN = ("--within", f"psnr_db={WITHIN_DB:g}", "--pipeline", "hundred")
"""The worst of the search's pictures has 36.8 dB with int8 weights."""
OVER_INT4 = 1.1


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return shutil.copytree(DIGITS, tmp_path_factory.mktemp("plan") / "digits")


@pytest.fixture(scope="module")
def planned(suite):
    return called(suite, "plan", "unet", *WITHIN)


def of(text, name):
    """The megabytes and the decibels of a file on the screen."""
    line = rf"^ {name} +([\d.]+) MB .* PSNR ([\d.]+) dB"
    ((size, decibels),) = re.findall(line, text, re.MULTILINE)
    return float(size), float(decibels)


def test_the_plan_has_nearly_int4s_size_within_a_bound_that_int4_exceeds(planned):
    assert planned.code == 0, planned.text
    (size, decibels), (int8, _), (int4, at_int4) = (
        of(planned.text, name) for name in ("planned", "int8-weights", "int4-weights")
    )
    assert size <= OVER_INT4 * int4 < int8
    assert at_int4 < WITHIN_DB <= decibels
