"""Paths in a suite that no file can have: one sentence names the key's line."""

import json
import os

import pytest

from harness.core.errors import SuiteError
from harness.suite.suite import load_suite
from tests.unit.suite.pipelines import UNET

RUNS = "[backend.mnn]\n"
SOURCE = next(line for line in UNET.splitlines() if line.startswith("checkpoint"))

PATHS = {
    "a long name": "x" * 300,
    "many folders": "a/" * 3000,
    "a path that leaves no room for a file": "a/" * 2040,
    "a home of nobody": "~nobody-of-this-name/net",
    "NUL": "a\0b",
    "a link to itself": "itself",
}
KEYS = {
    "checkpoint": UNET.replace(SOURCE, "checkpoint = PATH") + RUNS,
    "lora": UNET.replace(SOURCE, f"{SOURCE}\nlora = PATH") + RUNS,
    "package": UNET.replace(SOURCE, "package = PATH") + RUNS,
    "command": f'{UNET}{RUNS}targets = ["box"]\n[target.box]\ncommand = [PATH]\n',
}


def refusal(folder, text, path):
    """The message about a suite with a path in place of the word ``PATH``."""
    (folder / "itself").symlink_to("itself")
    suite = folder / "parity.toml"
    suite.write_text(text.replace("PATH", json.dumps(path)))
    with pytest.raises(SuiteError) as caught:
        load_suite(suite)
    return str(caught.value)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("what", PATHS)
def test_a_path_that_no_file_can_have_is_refused_at_its_line(tmp_path, key, what):
    path = PATHS[what]
    if key == "command":  # a name alone is looked for where programs are
        path = path if "/" in path else f"./{path}"
    if key == "package":
        path = f"json/{path}"
    if (key, what) in {
        ("package", "a home of nobody"),
        ("package", "a link to itself"),
    }:
        pytest.skip("it is a folder in the package, which is not there")
    check_refused(tmp_path, KEYS[key], path)


def check_refused(folder, text, path):
    line = text[: text.index("PATH")].count("\n") + 1

    said = refusal(folder, text, path)
    assert said.startswith(f"{folder}/parity.toml:{line}: "), said
    assert "\n" not in said
    assert "correct it" in said or "there is no " in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_this_user_may_not_look_into_is_refused(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    said = refusal(tmp_path, KEYS["checkpoint"], "closed")
    assert "Permission denied" in said
