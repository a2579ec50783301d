"""The files of a run: strict JSON, a JUnit file, a Markdown summary."""

import json

import pytest

from harness.engine.run_folder import SCHEMA
from tests.plugin.project import CASES


def refuse(word):
    pytest.fail(f"{word} is not JSON")


def test_one_json_holds_every_case_and_every_check_beside_two_pages(failing):
    project, _ = failing
    (path,) = project.reports
    report = json.loads(path.read_text(), parse_constant=refuse)

    assert report["schema"] == SCHEMA
    assert {case["case"] for case in report["cases"]} == set(CASES)
    assert len(report["verdicts"]) == 2 * len(CASES)
    assert all(case["rows"]["rms"] for case in report["cases"])
    assert report["exit_code"] == 1
    assert report["command"][0] == "pytest"
    assert report["environment"]["packages"]
    others = {file.name for file in path.parent.iterdir()} - {path.name}
    assert others == {"report.html", "summary.md"}


def test_a_part_is_reported_alone_and_a_ci_gets_the_summary(quick, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(quick.path / "step.md"))

    assert quick.pytest("-k", "outputs").code == 0

    assert [v["id"] for v in quick.report["verdicts"]] == [f"{CASES[0]}/outputs"]
    assert "1 of 1 case agrees" in (quick.path / "step.md").read_text()


def test_junit_properties_tell_the_verdict(failing):
    told = failing[0].junit

    differs = told["vae_decoder/mnn/fp32/layers"]
    assert differs["parity.outcome"] == "exceeds"
    assert differs["parity.first_divergence"]
    assert differs["parity.operator"].startswith("aten.")
    assert ".py:" in differs["parity.source"]
    assert float(differs["parity.floors"]) > 0
    agrees = told["vae_decoder/onnxruntime/fp32/outputs"]
    assert agrees["parity.outcome"] == "within"
    assert 0 <= float(agrees["parity.usage"]) <= 1
