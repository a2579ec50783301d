"""The checks that a run requests, and its first messages."""

import json
import sys
from types import SimpleNamespace
from typing import Any

from harness.engine.run import asked_of, header, missing
from harness.engine.run_folder import costs_of
from harness.engine.store import Store


def case(name, *layers) -> Any:
    component, backend, variant = name.split("/")
    return SimpleNamespace(
        id=name,
        subject=component,
        backend=backend,
        runtimes=(backend,),
        how=variant,
        whats=("layers", "outputs") if any(layers) else ("outputs",),
    )


def test_all_of_a_suite_is_every_check_of_every_case(tmp_path):
    path = tmp_path / "parity.toml"
    suite: Any = SimpleNamespace(
        path=path, tested=[case("a/mnn/fp32", True), case("b/mnn/fp32", False)]
    )

    assert asked_of(suite) == {
        (str(path), "a/mnn/fp32", "layers"),
        (str(path), "a/mnn/fp32", "outputs"),
        (str(path), "b/mnn/fp32", "outputs"),
    }


def test_the_header_counts_in_words_and_names_what_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left_out = (("a", "mnn/fused"), ("b", "mnn/fused"), ("c", "mnn/fp32"))
    suite: Any = SimpleNamespace(path=tmp_path / "parity.toml", left_out=left_out)
    cases = [case("a/mnn/fp32"), case("b/mnn/fp32")]

    lines = header(suite, cases, Store(root=tmp_path / "store")).splitlines()

    head = "parity: parity.toml · 2 cases: 2 components, 1 backend, 1 variant · "
    assert lines == [
        f"{head}store 0.0 MB",
        "not run for a, b, whose `variants` leave it out: mnn/fused",
    ]


def test_a_runtime_that_cannot_be_found_is_missing(monkeypatch):
    assert not missing(case("a/mnn/fp32"))
    monkeypatch.setitem(sys.modules, "MNN", None)
    assert missing(case("a/mnn/fp32"))
    assert not missing(case("a/onnxruntime/fp32"))


def test_times_come_from_the_newest_run_that_had_all_cases(tmp_path):
    """A run of one case afterwards tells nothing of the others."""
    ran: dict[str, dict[str, float | None]] = {
        "01": {"a": 1.0, "b": 1.0},
        "02": {"a": 2.0, "b": None},
        "03": {"a": 3.0},
    }
    for second, cases in ran.items():
        folder = tmp_path / f"2026-01-01T00-00-{second}"
        folder.mkdir()
        told = [
            {"suite": "s", "case": case, "took_s": took_s and {"candidate": took_s}}
            for case, took_s in cases.items()
        ]
        (folder / "report.json").write_text(json.dumps({"schema": 4, "cases": told}))

    def costs(*cases):
        return costs_of(tmp_path, [("s", case) for case in cases])

    assert costs("a", "b") == {("s", "a"): 2.0, ("s", "b"): 0.0}  # b failed
    assert costs("a") == {("s", "a"): 3.0}
    assert costs("a", "b", "never ran") == costs("a", "b")
