"""A plan of digits' UNet: nearly int4's size, nearly int8's pictures."""

import re
import shutil
from pathlib import Path

import pytest

from tests.plugin.project import called

pytestmark = pytest.mark.plan

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"
WITHIN = ("--within", "psnr_db=36", "--pipeline", "hundred")
"""The worst of the search's pictures has 36.8 dB with int8 weights."""
OVER_INT4 = 1.1
BELOW_INT8_DB = 1.6
"""This is 1.2 times the error."""


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


def test_the_plan_has_nearly_int4s_size_and_nearly_int8s_error(planned):
    assert planned.code == 0, planned.text
    (size, decibels), (int8, at_int8), (int4, at_int4) = (
        of(planned.text, name) for name in ("planned", "int8-weights", "int4-weights")
    )
    assert size <= OVER_INT4 * int4 < int8
    assert at_int4 < at_int8 - BELOW_INT8_DB <= decibels
