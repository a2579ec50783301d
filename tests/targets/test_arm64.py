"""MNN on an emulated arm64 processor: float16 arithmetic that x86 does not have."""

from pathlib import Path

import pytest

from harness.engine.finished_run import load_report
from tests.plugin.project import write_project

pytestmark = pytest.mark.targets
CASE = "vae_decoder/mnn/fp32"


@pytest.fixture(scope="module")
def report(machines, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(tmp_path_factory.mktemp("store")))
        project = write_project(tmp_path_factory.mktemp("arm64"))
        project.change(
            "parity.toml",
            '[backend.mnn]\nvariants = ["fp32", "int8-weights"]\n',
            '[backend.mnn]\ntargets = ["here", "new", "old"]\n'
            'precision = ["high", "low"]\n'
            f'[target.new]\ncommand = ["{machines[0]}"]\n'
            f'[target.old]\ncommand = ["{machines[1]}"]\n',
        )
        ended = project.parity("run", CASE.rpartition("/")[0])
        assert "Traceback" not in ended.text
        return load_report(project.path / "reports" / "runs", "last"), project.report


def outcomes(report, where):
    return {
        check["outcome"]
        for check in report[1]["verdicts"]
        if check["id"].rpartition("/")[0] == CASE + where
    }


def rows(report, where):
    return report[0].cases[CASE + where].record.rows


def test_float32_arithmetic_of_arm64_agrees_with_that_of_this_machine(report):
    here, there = rows(report, ""), rows(report, "@new")
    assert {row.probe for row in there} == {row.probe for row in here}
    assert min(row.comparison.sqnr_db for row in there if row.what == "outputs") > 90


def test_float16_arithmetic_is_caught_on_the_target_and_its_rounding_is_named(report):
    assert outcomes(report, "@new-low") == {"exceeds"}
    assert any("11 bits" in row.looks for row in rows(report, "@new-low"))


def test_what_is_wrong_there_agrees_here_and_begins_at_the_first_convolution(report):
    (layers,) = (
        check
        for check in report[1]["verdicts"]
        if check["id"] == f"{CASE}@new-low/layers"
    )
    assert outcomes(report, "") == {"within"}
    assert layers["first_divergence"] == "conv2d"


def test_a_machine_of_a_named_root_and_version(machines, tmp_path, monkeypatch):
    made = Path(machines[0]).parent
    monkeypatch.setenv("PATH", str(made), prepend=":")  # it may have the emulator
    named = ("--root", str(made / "root"), "--with", "onnxruntime==1.22.1")

    ended = write_project(tmp_path).parity(
        "target", "make", "arm64", "--into", "other", *named
    )

    assert ended.code == 0, ended.text
    assert ended.has("onnxruntime 1.22.1"), ended.text
    assert not ended.has("fetching a Python"), ended.text


def test_a_processor_that_does_not_exist_is_a_sentence(machines, tmp_path):
    into = str(Path(machines[0]).parent)
    ended = write_project(tmp_path).parity(
        *("target", "make", "arm64", "--cpu", "cortex-a0", "--into", into)
    )
    assert ended.code == 2
    assert ended.has("cortex-a0 cannot be emulated: ")
    assert not Path(into, "cortex-a0").exists()


@pytest.mark.parametrize("where", ["@low", "@old-low"])
def test_low_precision_without_float16_is_not_low(report, where):
    assert outcomes(report, where) == {"fell-back"}
