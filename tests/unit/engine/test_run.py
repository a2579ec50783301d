"""What a run asks for, what it says first, and what its exit code is."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.outcome import Outcome
from harness.core.runtime import missing
from harness.engine.run import asked_of, header
from harness.engine.store import Store
from harness.judge.run import exit_code


def verdict(outcome, case="unet/mnn/fp32", found=None):
    return SimpleNamespace(outcome=outcome, found=found or outcome, case=case)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        pytest.param(["within", "gap"], 0, id="agree"),
        pytest.param(["within", "exceeds"], 1, id="differ"),
        pytest.param(["within", "crashed"], 2, id="could-not-tell"),
        pytest.param(["crashed", "exceeds"], 1, id="a-known-difference-outweighs"),
        pytest.param(["within", "coverage"], 2, id="too-little-compared"),
        pytest.param(["within", "unavailable"], 0, id="one-skipped"),
        pytest.param(["unavailable"], 2, id="all-skipped"),
        pytest.param([], 2, id="nothing-ran"),
    ],
)
def test_exit_codes(outcomes, code):
    assert exit_code([verdict(Outcome(outcome)) for outcome in outcomes]) == code


def test_what_is_required_is_no_skip():
    verdicts = [verdict(Outcome.WITHIN), verdict(Outcome.UNAVAILABLE)]

    assert exit_code(verdicts, required=["onnxruntime"]) == 0
    assert exit_code(verdicts, required=["mnn"]) == 2


def test_stale_words_are_could_not_tell():
    assert exit_code([verdict(Outcome.WITHIN)], ["a gap matches nothing"]) == 2


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


def test_the_header_counts_in_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite: Any = SimpleNamespace(path=tmp_path / "parity.toml")
    cases = [case("a/mnn/fp32"), case("b/mnn/fp32")]

    line = header(suite, cases, Store(root=tmp_path / "store"))

    assert line == (
        "parity: parity.toml · 2 components × 1 backend × 1 variant, 2 cases · "
        "store 0.0 MB"
    )


def test_a_runtime_that_cannot_be_found_is_missing(monkeypatch):
    assert not missing(case("a/mnn/fp32"))
    monkeypatch.setitem(sys.modules, "MNN", None)
    assert missing(case("a/mnn/fp32"))
    assert not missing(case("a/onnxruntime/fp32"))
