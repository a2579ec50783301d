"""A second run makes no artifact again."""


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
    quick.pytest()
    before = contents(store)
    assert any(path.name == "model.onnx" for path in before)

    ended = quick.pytest()

    assert ended.code == 0, ended.text
    assert contents(store) == before


def test_the_header_says_what_runs(passing):
    _, ended = passing

    assert ended.has(
        "parity: parity.toml · 1 component × 2 backends × 2 variants, 3 cases · store "
    )
