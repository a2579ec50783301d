"""pytest's own ways to select and to stop also work on parity tests."""

import pytest

from tests.plugin.project import CASES

pytestmark = pytest.mark.slow


def test_collect_only_lists_ids_and_runs_nothing(quick):
    quick.collect().check(0, f"test_parity[{CASES[0]}/layers]")

    assert not (quick.path / "reports").exists()


def test_k_selects_by_id(project):
    ended = project.collect("-k", "mnn and outputs")

    assert ended.has("2/6 tests collected")


def test_x_stops_and_reports_what_was_reached(project):
    project.tighten("[onnxruntime.fp32]")

    ended = project.pytest("-x").check(1)
    assert ended.parity[0].startswith(f" ✗ {CASES[0]}   first diverges at ")
    assert [v["id"] for v in project.report["verdicts"]] == [f"{CASES[0]}/layers"]


def test_lf_runs_only_what_failed(quick):
    (quick.path / "tolerances.toml").write_text(
        '[onnxruntime.fp32]\noutputs = "exact"\nlayers = "standard"\n'
    )
    remembering = ("-p", "cacheprovider")
    quick.pytest(*remembering).check(1, "1 failed, 1 passed")

    quick.pytest(*remembering, "--lf").check(1, "collected 1 item", "1 failed")


def test_verbose_keeps_a_line_a_test(quick):
    ended = quick.pytest("-v", "-k", "outputs")

    assert ended.has(f"test_parity[{CASES[0]}/outputs] PASSED")
    assert not ended.has(f"✓ {CASES[0]}")
