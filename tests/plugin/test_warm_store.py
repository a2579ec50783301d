"""A second run makes no artifact again."""

import json


def contents(store):
    return {path: path.stat().st_mtime_ns for path in store.glob("v1/*/??/*/*")}


def test_a_second_run_makes_nothing(quick, tmp_path, monkeypatch):
    # Other tests fill the shared store while this one counts.
    store = tmp_path / "store"
    monkeypatch.setenv("PARITY_STORE", str(store))
    first = quick.pytest()
    assert first.has("exporting"), first.text
    before = contents(store)

    ended = quick.pytest("--durations=0")

    assert ended.code == 0, ended.text
    assert before
    assert contents(store).keys() == before.keys()
    assert not ended.has("exporting")
    assert not ended.has("converting")
    report = json.loads(quick.reports[-1].read_text())
    assert all("onnx" not in case["took_s"] for case in report["cases"])


def test_the_header_says_what_runs(passing):
    _, ended = passing

    assert ended.has(
        "parity: parity.toml · 1 component × 2 backends × 2 variants, 3 cases · store "
    )
