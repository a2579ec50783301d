"""A second run makes no artifact again; what is old is forgotten."""

import os

from harness.engine.store import Store


def contents(store):
    """Return when each file of an artifact was written, without the mark of its use."""
    return {
        path: path.stat().st_mtime_ns
        for path in store.glob("v1/*/??/*/*")
        if path.name != "entry.json"
    }


def test_a_second_run_makes_nothing(quick, tmp_path, monkeypatch):
    # Other tests fill the shared store while this one counts.
    store = tmp_path / "store"
    monkeypatch.setenv("PARITY_STORE", str(store))
    quick.parity("run")
    before = contents(store)
    assert any(path.name == "model.onnx" for path in before)

    quick.parity("run").check(0)

    assert contents(store) == before


def test_a_run_leaves_the_store_within_its_limit(quick, tmp_path, monkeypatch):
    def write(folder):
        (folder / "model.onnx").write_bytes(bytes(2**20))
        return {}

    old = Store(root=tmp_path / "store").make("onnx", {"opset": 1}, write)
    os.utime(old.path / "entry.json", (0, 0))
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PARITY_STORE_GB", "0.0001")

    ended = quick.parity("run")

    assert ended.has("the store forgot 1 entry of long ago")
    assert not old.path.exists()


def test_the_header_says_what_runs(passing):
    _, ended = passing

    assert ended.has(
        "parity: parity.toml · 3 cases: 1 component, 2 backends, 2 variants · store "
    )
