"""Versions of a runtime: which can be installed, without a network."""

import os
import sys
from pathlib import Path

import pytest

from harness.commands.cli import main
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.engine.environments import installed_versions
from harness.engine.store import Store
from harness.plugins.versions.environments import available, python_of
from tests.unit.conftest import MNN_VERSIONS
from tests.unit.engine.test_environments import made

MNN = runtime("mnn")


@pytest.mark.usefixtures("wheels")
def test_versions_are_those_with_a_wheel_for_this_python_oldest_first():
    assert available(MNN) == MNN_VERSIONS


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("version", ["9.9.9", "3.2.0"], ids=["none", "other-python"])
def test_a_version_without_a_wheel_is_a_sentence_and_leaves_nothing(tmp_path, version):
    with pytest.raises(StageError) as error:
        python_of(MNN, version)
    assert f"has no wheel of MNN {version} for Python 3." in str(error.value)
    assert "it has 3.4.1, 3.5.0, 3.10.0." in str(error.value)
    assert error.value.outcome is Outcome.LOAD
    assert [path.suffix for path in (tmp_path / "store" / "versions").iterdir()] == [
        ".lock"
    ]


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("version", ["../x", "/x", "3.5.0 --pre", "", "-r x", " 3.5.0"])
def test_what_is_no_version_is_neither_a_path_nor_an_option(tmp_path, version):
    with pytest.raises(StageError, match="is no version of MNN"):
        python_of(MNN, version)
    assert not (tmp_path / "store").exists()


def environment_in(root, version="3.5.0"):
    """A folder that looks as if a version were installed in it."""
    name = f"MNN-{version}-{sys.implementation.cache_tag}"
    python = root / "versions" / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    return python


@pytest.mark.parametrize("place", ["", "versions", "versions/*"])
def test_an_environment_that_others_can_change_is_left(tmp_path, monkeypatch, place):
    root = tmp_path / "store"
    monkeypatch.setenv("PARITY_STORE", str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = environment_in(root)
    assert installed_versions(MNN) == {"3.5.0": python}
    next(root.glob(place) if place else iter([root])).chmod(0o777)
    assert installed_versions(MNN) == {}


@pytest.mark.usefixtures("wheels")
def test_an_installer_reads_no_settings_of_the_folder(tmp_path, monkeypatch):
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\npwd > {tmp_path}/seen\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StageError):
        python_of(MNN, "3.5.0")

    assert (tmp_path / "seen").read_text().strip() == str(Path.home())


@pytest.mark.usefixtures("index")
def test_an_index_that_does_not_answer_is_no_wrong_version():
    with pytest.raises(StageError) as error:
        python_of(MNN, "3.5.0")
    assert "the package index cannot be reached, or has no MNN" in str(error.value)
    assert error.value.outcome is Outcome.ABSENT


def test_an_environment_that_is_used_counts_as_new(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    folder = made(Store(root=tmp_path / "store"), "3.4.1", 3)
    assert python_of(MNN, "3.4.1") == folder / "bin" / "python"
    assert main(["store", "prune", "--max-gb", "0"]) == 0
    assert folder.is_dir()
