"""A plan of digits' UNet: nearly int4's size, nearly int8's pictures."""

import re
import shutil
from pathlib import Path

import pytest

from harness.core.pipeline import IMAGE
from harness.engine.run_folder import load_report
from tests.plugin.project import called

pytestmark = pytest.mark.plan

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"
WITHIN = ("--within", "psnr_db=41.4", "--pipeline", "hundred")
"""A bound that allows 1.2 times the error of int8's pictures, which are at 43.0 dB."""
FACTOR_DB = 1.6
"""1.2 in decibels."""


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
    (size, decibels), (int8, at_int8), (int4, _) = (
        of(planned.text, name) for name in ("planned", "int8-weights", "int4-weights")
    )
    assert size <= 1.1 * int4 < int8
    assert decibels >= at_int8 - FACTOR_DB


def test_every_one_of_the_hundred_prompts_is_read_right(suite, planned):
    assert planned.code == 0, planned.text
    path = suite / "parity.toml"
    text = path.read_text(encoding="utf-8")
    listed = 'variants = ["fp32", "int8-weights", "int4-weights"]'
    more = listed.replace("]", ', "planned"]')
    path.write_text(text.replace(listed, more), encoding="utf-8")

    # The bound holds for unseen pictures with the odds that a few of them tell; all are
    # read all the same.
    called(suite, "run", "hundred/mnn/planned")

    report = load_report(suite / "reports" / "runs", "last")
    (record,) = report.records.values()
    pictures = [row.comparison.picture for row in record.rows if row.what == IMAGE]
    assert len(pictures) == 100
    assert all(one.actual_read == one.expected_read for one in pictures)
