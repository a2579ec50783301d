"""Versions of a runtime: which can be installed, without a network, and which go."""

import os
import sys
import time
import venv
from pathlib import Path

import pytest
from filelock import FileLock

from harness.commands.cli import main
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.engine.environments import (
    available,
    environments,
    installed_versions,
    python_of,
)
from harness.engine.store import Store
from tests.unit.conftest import MNN_VERSIONS

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
def test_an_environment_that_others_may_change_is_not_used(
    tmp_path, monkeypatch, place
):
    root = tmp_path / "store"
    monkeypatch.setenv("PARITY_STORE", str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = environment_in(root)
    assert installed_versions(MNN) == {"3.5.0": python}

    next(root.glob(place) if place else iter([root])).chmod(0o777)

    assert installed_versions(MNN) == {}


@pytest.mark.usefixtures("wheels")
def test_an_installer_does_not_read_settings_of_the_current_folder(
    tmp_path, monkeypatch
):
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


# What `parity store` does with environments; these are real, though without a runtime.

DAY_S = 86_400


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    return Store(root=tmp_path / "store")


def made(store, version, days):
    """An environment that was used so many days ago."""
    name = f"{MNN.distributions[-1]}-{version}-{sys.implementation.cache_tag}"
    folder = store.root / "versions" / name
    venv.create(folder)
    then = time.time() - days * DAY_S
    os.utime(folder, (then, then))
    return folder


def entry(store, days):
    """An entry of the store that was used so many days ago."""

    def build(folder):
        (folder / "model.onnx").write_bytes(bytes(1000))
        return {}

    found = store.make("onnx", {"days": days}, build)
    then = time.time() - days * DAY_S
    os.utime(found.path / "entry.json", (then, then))
    return found.path


def test_prune_removes_environments_that_were_not_used_lately_and_names_them(
    store, capsys
):
    old, used = made(store, "3.4.1", 3), made(store, "3.5.0", 0.5)

    assert main(["store", "prune", "--max-gb", "0"]) == 0
    assert not old.exists()
    assert used.is_dir()
    said = capsys.readouterr().out
    assert f"removed the environment {old.name}, " in said
    assert used.name not in said
    assert sorted(path.name for path in used.parent.glob("*/")) == [used.name]


def test_prune_has_one_order_of_environments_and_entries(store):
    first, second, third = made(store, "3.4.1", 5), entry(store, 4), entry(store, 3)
    fourth = made(store, "3.5.0", 2)
    (rest,) = (one for one in environments(store.root) if one.path == fourth)
    room = rest.size_bytes + 1005  # of the environment and one entry

    assert main(["store", "prune", "--max-gb", f"{room / 2**30:.12f}"]) == 0
    assert [one.exists() for one in (first, second, third, fourth)] == [
        *(False, False),
        *(True, True),
    ]


def test_a_file_that_entries_share_counts_once_beside_environments(store):
    def build(folder):
        (folder / "weights.bin").write_bytes(bytes(1 << 22))
        return {}

    folder = made(store, "3.4.1", 3)
    for number in range(5):
        store.make("mnn", {"number": number}, build)
    (environment,) = environments(store.root)
    room = environment.size_bytes + (1 << 23)

    assert main(["store", "prune", "--max-gb", f"{room / 2**30:.12f}"]) == 0
    assert folder.is_dir()


def test_an_environment_that_is_used_counts_as_new(store):
    folder = made(store, "3.4.1", 3)

    assert python_of(MNN, "3.4.1") == folder / "bin" / "python"
    assert main(["store", "prune", "--max-gb", "0"]) == 0
    assert folder.is_dir()


def test_an_environment_that_a_process_holds_stays(store):
    folder = made(store, "3.4.1", 3)
    with FileLock(f"{folder}.lock"):
        assert main(["store", "prune", "--max-gb", "0"]) == 0

    assert folder.is_dir()


def test_an_installation_that_died_is_removed_like_an_environment(store):
    left = store.root / "versions" / "tmp0a1b2c3d"
    venv.create(left / "made")
    then = time.time() - 2 * DAY_S
    os.utime(left, (then, then))

    assert main(["store", "prune", "--max-gb", "0"]) == 0
    assert not left.exists()


def test_environments_are_listed_and_cleared(store, capsys):
    folder = made(store, "3.4.1", 0)

    assert main(["store", "list"]) == 0
    assert folder.name in capsys.readouterr().out
    assert main(["store", "clear", "--yes"]) == 0
    assert not folder.exists()
