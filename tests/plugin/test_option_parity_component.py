"""--parity-component NAME,...: only these components."""

from tests.plugin.project import PYTEST


def test_a_word_no_suite_has_is_a_usage_error_with_the_nearest(quick):
    ended = quick.pytest("--parity-component=vae_decodr")

    assert ended.code == 4
    assert ended.has(
        "--parity-component: there is no component 'vae_decodr'; "
        "did you mean 'vae_decoder'?"
    )


def test_a_component_that_is_there_is_collected(quick):
    ended = quick.pytest("--parity-component=vae_decoder", "--collect-only", "-q")

    assert ended.has("2 tests collected")


def test_other_tests_are_not_left_out(quick):
    (quick.path / "test_other.py").write_text("def test_other():\n    pass\n")

    ended = quick.run(*PYTEST, "--co", "-q", "--parity-component=vae_decoder")

    assert ended.has("3 tests collected")
