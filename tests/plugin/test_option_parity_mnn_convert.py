"""--parity-mnn-convert PROGRAM: a native converter instead of the wheel's."""

from tests.plugin.project import PYTEST


def test_a_program_that_fails_is_2_and_says_so(project):
    program = project.path / "MNNConvert"
    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    program.chmod(0o755)

    ended = project.pytest(
        "--parity-backend=mnn", f"--parity-mnn-convert={program}", "-k", "fp32"
    )

    assert ended.code == 2, ended.text
    assert ended.has("vae_decoder/mnn/fp32   convert")
    assert ended.has("it is broken")


def test_every_option_is_explained_in_one_line(quick):
    ended = quick.run(*PYTEST, "--help")
    lines = ended.text.splitlines()

    options = [line for line in lines if line.startswith("  --parity-")]
    assert len(options) == 11
    assert all(len(line) < 100 for line in options)
