"""Modules that lie in the current folder are not imported where data may have come."""

import os
import subprocess
import sys

import pytest

from harness.core.program import ended
from harness.engine.host import Host
from harness.plugins.start.doctor.child import ask_child

NAMES = ("numpy", "click", "json", "msgspec", "readline", "sitecustomize")
PLANTED = """
from pathlib import Path
Path({seen!r}).write_text(__name__)
raise ImportError("planted")
"""
ASK = "import json, numpy"


@pytest.fixture(params=["", ":", "."], ids=["unset", "empty", "dot"])
def folder(request, tmp_path, monkeypatch):
    """A folder with modules of somebody else's, which is the current one."""
    place = tmp_path / "downloaded"
    place.mkdir()
    for name in NAMES:
        text = PLANTED.format(seen=str(tmp_path / "seen"))
        (place / f"{name}.py").write_text(text)
    monkeypatch.chdir(place)
    if request.param:  # an empty entry means the current folder
        monkeypatch.setenv("PYTHONPATH", request.param)
    else:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    return place


def imported():
    import numpy as np

    return np.__file__, os.environ.get("PYTHONPATH")


def in_a_host():
    with Host("isolated", ["json", "numpy"]) as host:
        host.run(imported, timeout_s=60, label="import")


CHILDREN = {
    "words": lambda: ended([sys.executable, "-c", ASK]).words,
    "module": lambda: ended([sys.executable, "-m", "json.tool", "-h"]).words,
    "script": lambda: ended([sys.executable, "ask.py"]).words,
    "doctor": lambda: ask_child("load", "onnx").ended,
    "host": in_a_host,
}


@pytest.mark.parametrize("how", CHILDREN)
def test_a_child_imports_nothing_from_the_current_folder(folder, how):
    (folder / "ask.py").write_text(ASK)
    CHILDREN[how]()
    assert not (folder.parent / "seen").exists()


def test_the_command_imports_nothing_from_the_current_folder(folder, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it is the user's own choice
    done = subprocess.run(
        [sys.executable, "-m", "harness", "store", "list"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not (folder.parent / "seen").exists()


def test_an_absolute_search_path_of_the_user_stays(tmp_path, monkeypatch):
    (tmp_path / "own_package.py").write_text("print('found')")
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}:relative")
    assert ended([sys.executable, "-c", "import own_package"]).text == "found"
