"""A second run makes no artifact again; what is old is forgotten."""

import os

import pytest

from harness.engine.store import Store


def contents(store):
    """Return when each file of an artifact was written, without the mark of its use."""
    return {
        path: path.stat().st_mtime_ns
        for path in store.glob("v1/*/??/*/*")
        if path.name != "entry.json"
    }


@pytest.fixture(scope="module")
def ran(passing, tmp_path_factory):
    """A project that has run, and the store that it filled."""
    project = passing[0].branch(tmp_path_factory.mktemp("warm") / "project")
    project.only_onnxruntime()
    store = project.path / "store"
    # Other tests fill the shared store while one of these counts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(store))
        project.parity("run").check(0)
        yield project, store


def test_a_second_run_makes_nothing(ran):
    project, store = ran
    before = contents(store)
    assert any(path.name == "model.onnx" for path in before)
    project.parity("run").check(0)
    assert contents(store) == before


def test_a_run_leaves_the_store_within_its_limit(ran, monkeypatch):
    project, store = ran

    def write(folder):
        (folder / "model.onnx").write_bytes(bytes(2**20))
        return {}

    old = Store(root=store).make("onnx", {"opset": 1}, write)
    os.utime(old.path / "entry.json", (0, 0))
    monkeypatch.setenv("PARITY_STORE_GB", "0.0001")

    assert project.parity("run").has("the store forgot 1 entry of long ago")
    assert not old.path.exists()


def test_the_header_says_what_runs(passing):
    _, ended = passing
    assert ended.has(
        "parity: parity.toml · 3 cases: 1 component, 2 backends, 2 variants · store "
    )
