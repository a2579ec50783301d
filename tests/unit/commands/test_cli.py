"""The command's help loads no NumPy and no framework; an unknown word exits with 2."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from harness.commands.cli import cli, main
from harness.commands.options import HomePath, new_folder
from harness.core.errors import SuiteError
from harness.engine.store import Store
from tests.places import FIXTURES, ROOT


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


@pytest.mark.parametrize(
    "words",
    [
        ["init", "LONG"],
        ["judge", "LONG"],
        ["verify", "LONG", "LONG"],
        ["show", "LONG"],
        ["show", "--suite", "LONG"],
        ["merge", "LONG"],
        ["store", "list", "--store", "LONG"],
        ["run", "--suite", "LONG", "--runs", "LONG"],
    ],
    ids=" ".join,
)
def test_a_path_that_cannot_be_is_a_sentence(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([word.replace("LONG", "x" * 5000) for word in words]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert 0 < len(said) < 2000


@pytest.mark.parametrize(
    "words",
    [
        *(["prune", "--max-gb", size] for size in ("nan", "inf")),
        *(["clear", "--older-than", days] for days in ("0", "-1", "nan")),
    ],
)
def test_an_amount_that_is_none_removes_nothing_from_a_store(words, tmp_path, capsys):
    store = Store(root=tmp_path / "store")
    kept = store.make("onnx", {"opset": 18}, lambda _: {})
    assert main(["store", *words, "--store", str(store.root)]) == 2
    assert words[1] in capsys.readouterr().err
    assert [entry.id for entry in store.entries()] == [kept.id]


@pytest.mark.parametrize("words", [["store", "list"], ["store", "verify"]])
def test_an_empty_store_is_no_error(words, tmp_path, capsys):
    assert main([*words, "--store", str(tmp_path / "none")]) == 0
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["show", "--runs=~/x"], " under {}"),
        (["report", "--runs=~/x"], " under {}"),
        (["nodes", "last", "case", "--runs=~/x"], " under {}"),
        (["diff", "a", "b", "--runs=~/x"], " under {}"),
        (["run", "--suite=~/x"], " no suite at {}"),
        (["target", "make", "arm64", "--root=~/x"], "'{}' does not exist"),
    ],
)
def test_a_tilde_is_the_home_of_the_user(command, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(command) == 2
    assert said.format(tmp_path / "x") in capsys.readouterr().err


def every_command(group):
    """Yield the commands of a group, and those of the groups in it."""
    for one in group.commands.values():
        yield from every_command(one) if isinstance(one, click.Group) else [one]


def test_every_path_of_a_command_may_begin_with_a_tilde():
    given = [one for command in every_command(cli) for one in command.params]
    paths = [one for one in given if isinstance(one.type, click.Path)]
    assert {"--out", "--suite", "--runs", "--into"} <= {p.opts[0] for p in paths}
    assert [one for one in paths if not isinstance(one.type, HomePath)] == []


@pytest.mark.parametrize(
    ("name", "meanwhile"),
    [("file/made", None), ("made", OSError(errno.ENOSPC, "No space left on device"))],
)
def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path, name, meanwhile):
    (tmp_path / "file").touch()
    path = tmp_path / name
    words = rf"{path} cannot be made \(.+\); give another with --out"
    with pytest.raises(SuiteError, match=words), new_folder(path):
        raise meanwhile or AssertionError(path)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


# What the key Tab does: bash fills COMP_WORDS and reads COMPREPLY.
TAB = """
set -e
cd "$1" && shift
source=$(_PARITY_COMPLETE=bash_source parity)
eval "$source"
COMP_WORDS=(parity "$@")
COMP_CWORD=$#
_parity_completion parity
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("folder", "words", "completed"),
    [
        ("digits", ["expl"], "explain"),
        ("digits", ["run", "unet/openv"], "unet/openvino/fp32"),
        ("digits", ["explain", "vae_decoder/mnn/int4"], "vae_decoder/mnn/int4-weights"),
        ("", ["run", "unet/openv"], ""),
    ],
)
def test_the_key_tab_completes_commands_and_cases(folder, words, completed):
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", str(FIXTURES / folder), *words],
        env={**os.environ, "PATH": beside, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == completed


def test_a_baseline_is_refused_where_no_plug_in_compares_with_one(monkeypatch, capsys):
    monkeypatch.setattr("harness.core.plugins._plugins", lambda: ())
    suite = str(FIXTURES / "text_tasks" / "bert")
    assert main(["run", "--suite", suite, "--baseline", "digits"]) == 2
    assert (
        "needs a plug-in that compares runs, and none is installed"
        in capsys.readouterr().err
    )
