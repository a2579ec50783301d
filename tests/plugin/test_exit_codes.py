"""Exit codes: 0 parity, 1 no parity, 2 could not tell; other failures of a session."""

from tests.plugin.project import PYTEST

_UNRELATED = """
import pytest


@pytest.mark.parity
def test_unrelated():
    assert 1 == 2
"""


def test_agreement_is_0(passing):
    _, ended = passing

    assert ended.code == 0, ended.text
    assert ended.has("6 passed")


def test_a_difference_is_1(failing):
    _, ended = failing

    assert ended.code == 1, ended.text
    assert ended.has("2 failed, 4 passed")


def test_a_stage_that_ends_without_an_answer_is_2(quick):
    quick.change("parity.toml", "timeout_s = 120", "timeout_s = 0.001")

    ended = quick.pytest()

    assert ended.code == 2, ended.text
    assert ended.has("vae_decoder/onnxruntime/fp32   timed-out")
    assert ended.has("raise timeout_s under [limits]")


def test_a_failure_that_is_not_about_parity_stays_1(quick):
    quick.change("parity.toml", "timeout_s = 120", "timeout_s = 0.001")
    (quick.path / "test_unrelated.py").write_text(_UNRELATED)

    ended = quick.pytest()

    assert ended.code == 1, ended.text
    assert ended.has("timed-out")


def test_a_test_that_fails_after_parity_held_is_1(quick):
    quick.change("test_parity.py", "require(check)", "require(check)\n    assert 0")

    assert quick.pytest("-k", "outputs").code == 1


def test_a_gap_that_matches_nothing_is_2(quick):
    (quick.path / "known_gaps.toml").write_text(
        '[[gap]]\ncase = "unet/*"\noutcome = "exceeds"\nwhy = "it did"\n'
    )

    ended = quick.pytest()

    assert ended.code == 2, ended.text
    assert ended.has("the gap 'unet/*' matches no check; remove it, or have")


def test_a_gap_is_not_stale_where_only_a_part_was_run(quick):
    (quick.path / "known_gaps.toml").write_text(
        '[[gap]]\ncase = "unet/*"\noutcome = "exceeds"\nwhy = "it did"\n'
    )

    assert quick.pytest("-k", "outputs").code == 0


def test_a_suite_that_cannot_be_read_is_2_and_a_sentence(quick):
    quick.change("parity.toml", "seed = 0", "sed = 0")

    ended = quick.pytest()

    assert ended.code == 2
    assert ended.has("unknown key 'sed' in [source]; did you mean 'seed'?")
    assert not ended.has("Traceback")
    assert not ended.has("toml_file.py")


def test_tolerances_that_cannot_be_read_are_2_and_a_sentence(quick):
    quick.change("tolerances.toml", '"standard"', '"standart"')

    ended = quick.pytest()

    assert ended.code == 2
    assert ended.has("did you mean 'standard'?")
    assert not ended.has("INTERNALERROR")
    assert quick.reports == []


def test_a_session_without_parity_tests_is_left_alone(quick):
    (quick.path / "test_parity.py").write_text("def test_one():\n    pass\n")

    ended = quick.run(*PYTEST, "-n", "1")

    assert ended.code == 0, ended.text
    assert not ended.has("parity =")
    assert not (quick.path / "reports").exists()
