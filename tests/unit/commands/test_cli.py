"""The command's help loads no NumPy and no framework; an unknown word exits with 2."""

import subprocess
import sys

import pytest

from harness.commands.cli import main


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["--version"]])
def test_asking_for_help_loads_no_numpy_and_no_framework(args):
    script = (
        "import sys; from harness.commands.cli import main; main(sys.argv[1:]); "
        "heavy = {'numpy', 'torch', 'onnx', 'onnxruntime', 'MNN'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("args", [["rum"], ["run", "--tear"], ["run", "--jobs", "0"]])
def test_a_word_it_does_not_know_is_2(args, capsys):
    assert main(args) == 2
    assert "Usage: parity" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["store", "list"], ["store", "verify"]])
def test_an_empty_store_is_no_error(words, tmp_path, capsys):
    assert main([*words, "--store", str(tmp_path / "none")]) == 0
    assert str(tmp_path) in capsys.readouterr().out
