"""Versions of a runtime that can be installed, asked of pip without a network."""

import pytest

from harness.commands.versions import between
from harness.core.errors import SpecError, StageError
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.engine.environments import available, python_of
from tests.unit.conftest import MNN_VERSIONS

MNN = runtime("mnn")


@pytest.mark.usefixtures("wheels")
def test_versions_are_those_with_a_wheel_for_this_python_oldest_first():
    assert available(MNN) == MNN_VERSIONS


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("version", ["9.9.9", "3.2.0"], ids=["none", "other-python"])
def test_a_version_without_a_wheel_is_a_sentence_and_leaves_nothing(tmp_path, version):
    with pytest.raises(StageError) as error:
        python_of(MNN, version)

    assert f"has no wheel of MNN {version} for Python 3." in str(error.value)
    assert "it has 3.4.1, 3.5.0, 3.10.0." in str(error.value)
    assert error.value.outcome is Outcome.LOAD
    assert [path.suffix for path in (tmp_path / "store" / "versions").iterdir()] == [
        ".lock"
    ]


@pytest.mark.usefixtures("index")
def test_an_index_that_does_not_answer_is_no_wrong_version():
    with pytest.raises(StageError) as error:
        python_of(MNN, "3.5.0")

    assert "the package index cannot be reached, or has no MNN" in str(error.value)
    assert error.value.outcome is Outcome.UNAVAILABLE


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
        pytest.param("3.3.0", "", "has no wheel of MNN 3.3.0 for", id="unknown"),
        pytest.param("3.10.0", "3.5.0", "is newer than --to 3.5.0", id="exchanged"),
    ],
)
def test_a_range_that_cannot_be_is_refused(oldest, newest, words):
    with pytest.raises(SpecError, match=words):
        between(MNN, MNN_VERSIONS, oldest, newest)
