"""Exit codes: 0 parity, 1 no parity, 2 could not tell; other failures of a session."""

import pytest

from tests.plugin.project import PARITY, PYTEST

_UNRELATED = """
import pytest


@pytest.mark.parity
def test_unrelated():
    assert 1 == 2
"""


def test_agreement_is_0(passing):
    _, ended = passing
    ended.check(0, "6 passed")


def test_a_difference_is_1(failing):
    _, ended = failing
    ended.check(1, "2 failed, 4 passed")


def test_a_stage_without_an_answer_is_2_and_a_failure_of_another_test_1(quick):
    quick.change("parity.toml", "timeout_s = 120", "timeout_s = 0.001")
    alone = quick.start_pytest()
    (quick.path / "test_unrelated.py").write_text(_UNRELATED)
    beside = quick.pytest()
    assert (alone.code, beside.code) == (2, 1), alone.text + beside.text
    for ended in (alone, beside):
        assert ended.has("vae_decoder/onnxruntime/fp32   timed-out")
        assert ended.has("raise timeout_s under [limits]")


def test_a_runtime_that_lacks_a_package_is_not_skipped(passing, tmp_path, monkeypatch):
    lacking = 'raise ModuleNotFoundError("no flatbuffers", name="flatbuffers")'
    (tmp_path / "flatbuffers.py").write_text(lacking)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    project = passing[0].branch(tmp_path / "project")
    ended = project.run(*PARITY, "run")
    ended.check(2, "✓ vae_decoder/onnxruntime/fp32", "vae_decoder/mnn/fp32", "absent")
    assert ended.has("ModuleNotFoundError: no flatbuffers")


def test_a_test_that_fails_after_parity_held_is_1(quick):
    quick.change("test_parity.py", "require(check)", "require(check)\n    assert 0")
    assert quick.pytest("-k", "outputs").code == 1


@pytest.mark.parametrize(("part", "code"), [((), 2), (("-k", "outputs"), 0)])
def test_a_gap_that_matches_nothing_is_2_where_the_whole_suite_ran(quick, part, code):
    (quick.path / "known_gaps.toml").write_text(
        '[[gap]]\ncase = "unet/*"\noutcome = "exceeds"\nwhy = "it did"\n'
    )
    ended = quick.pytest(*part)
    assert ended.code == code, ended.text
    told = ended.has("the gap 'unet/*' matches no check; remove it, or have")
    assert told == (code == 2)


def test_a_suite_that_cannot_be_read_is_2_and_a_sentence(quick):
    quick.change("parity.toml", "seed = 0", "sed = 0")
    ended = quick.collect()
    ended.check(2, "unknown key 'sed' in [source]; did you mean 'seed'?")
    assert not ended.has("toml_file.py")


def test_tolerances_that_cannot_be_read_are_2_and_a_sentence(quick):
    quick.change("tolerances.toml", '"standard"', '"standart"')
    ended = quick.pytest()
    ended.check(2, "did you mean 'standard'?")
    assert not ended.has("INTERNALERROR")
    assert quick.reports == []


def test_a_session_without_parity_tests_is_left_alone(quick):
    (quick.path / "test_parity.py").write_text("def test_one():\n    pass\n")
    assert not quick.run(*PYTEST, "-n", "1").check(0).has("parity =")
    assert not (quick.path / "reports").exists()
