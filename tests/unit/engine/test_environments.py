"""Environments of a runtime's versions: which of them `parity store` removes."""

import os
import sys
import time
import venv

import pytest
from filelock import FileLock

from harness.commands.cli import main
from harness.core.runtime import runtime
from harness.engine.environments import environments
from harness.engine.store import Store

MNN = runtime("mnn")


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


def test_prune_names_environments_that_were_not_used_lately(store, capsys):
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
