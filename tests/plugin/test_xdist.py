"""Under `pytest -n 2` verdicts, summary and report are the same, and appear once."""

import re

import pytest

from tests.plugin.project import CASES, write_project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ended(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    project = write_project(tmp_path_factory.mktemp("xdist"))
    project.tighten()
    return project, project.start_pytest("-n", "2")


def test_verdicts_and_the_exit_code_are_the_same(ended, failing):
    assert ended[1].code == 1
    assert ended[0].outcomes == failing[0].outcomes


def test_the_controller_prints_the_summary(ended, failing):
    def timeless(lines):
        return [re.sub(r"\d{4}-\d\d-\d\dT[\d-]+", "RUN", line) for line in lines]

    assert timeless(ended[1].parity) == timeless(failing[1].parity)


def test_each_case_has_one_line(ended):
    lines = [line for line in ended[1].text.splitlines() if line[1:2] in {"✓", "✗"}]
    # The failure's block in the summary is the fourth.
    assert sorted(line.split()[1] for line in lines) == sorted([*CASES, CASES[1]])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--parity-on=ray", "ERROR: --parity-on: the cluster runs cases at once"),
        ("--parity-component=vae_decodr", "did you mean 'vae_decoder'?"),
    ],
    ids=["cluster", "word-no-suite-has"],
)
def test_what_cannot_be_is_a_usage_error(quick, option, words):
    ended = quick.start_pytest("-n", "2", option)
    ended.check(4, words)
    assert not ended.has("Traceback")
    assert not ended.has("INTERNALERROR")
