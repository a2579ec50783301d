"""Under `pytest -n 2` verdicts, summary and report are the same, and appear once."""

import re

import pytest

from tests.plugin.project import CASES, write_project


@pytest.fixture(scope="module")
def ended(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    project = write_project(tmp_path_factory.mktemp("xdist"))
    project.tighten()
    return project, project.pytest("-n", "2")


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


def test_a_cluster_is_refused(quick):
    ended = quick.pytest("-n", "2", "--parity-on=ray")

    assert ended.code == 4
    assert ended.has("ERROR: --parity-on: the cluster runs cases at once")
    assert not ended.has("Traceback")


def test_a_word_no_suite_has_is_a_usage_error(quick):
    ended = quick.pytest("-n", "2", "--parity-component=vae_decodr")

    assert ended.code == 4
    assert ended.has("did you mean 'vae_decoder'?")
    assert not ended.has("INTERNALERROR")
