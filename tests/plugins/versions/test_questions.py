"""Which versions `parity versions` tries, and what it asks of each."""

from importlib.metadata import version

import pytest

from harness.core.case import Target
from harness.core.errors import SpecError
from harness.core.runtime import runtime
from harness.plugins.versions.command import between, questions
from harness.suite.suite import load_suite
from tests.unit.conftest import MNN_VERSIONS
from tests.unit.suite.pipelines import UNET

MNN = runtime("mnn")


@pytest.mark.parametrize(
    ("oldest", "newest", "wanted"),
    [
        pytest.param("", "", MNN_VERSIONS, id="all"),
        pytest.param("3.5.0", "", MNN_VERSIONS[1:], id="from"),
        pytest.param("", "3.5.0", MNN_VERSIONS[:2], id="to"),
    ],
)
def test_a_limit_that_is_left_out_is_no_limit(oldest, newest, wanted):
    assert between(MNN, MNN_VERSIONS, oldest, newest) == wanted


@pytest.mark.parametrize(
    ("oldest", "newest", "words"),
    [
        pytest.param(
            "3.3.0", "", "--from 3.3.0 is no version of MNN that can", id="unknown"
        ),
        pytest.param("3.10.0", "3.5.0", "is newer than --to 3.5.0", id="exchanged"),
    ],
)
def test_a_range_that_cannot_be_is_refused(oldest, newest, words):
    with pytest.raises(SpecError, match=words):
        between(MNN, MNN_VERSIONS, oldest, newest)


def test_no_version_at_all_is_a_sentence():
    with pytest.raises(SpecError, match="no version of MNN can be had for this Python"):
        between(MNN, (), "", "")


def at(number):
    return Target(name=number, version=number)


def case_of(tmp_path, backend):
    (tmp_path / "parity.toml").write_text(f"{UNET}{backend}\n")
    (case,) = load_suite(tmp_path).cases
    return case


@pytest.mark.parametrize(
    ("converter", "by"),
    [
        pytest.param('converter = "3.4.1"', "3.4.1", id="of-the-suite"),
        pytest.param("", version("MNN"), id="installed"),
    ],
)
def test_the_second_question_names_the_files_converter(tmp_path, converter, by):
    case = case_of(tmp_path, f"[backend.mnn]\n{converter}")
    asked = dict(questions(case, MNN, at("3.10.0")))
    assert list(asked) == ["converted and run there", f"converted by {by}, run there"]
    converters = [one.variant.converter for one in asked.values()]
    assert converters == ["3.10.0", case.variant.converter]


def test_both_questions_to_a_version_are_judged_by_its_table(tmp_path):
    case = case_of(tmp_path, '[backend.mnn]\nprecision = ["low"]')
    asked = dict(questions(case, MNN, at("3.5.0")))
    assert [one.id for one in asked.values()] == ["unet/mnn/fp32@3.5.0-low"] * 2
