"""Two suites of one run may have equal case names; their results are kept apart."""

import re
import time
from datetime import UTC, datetime

import psutil
import pytest

from harness.core.settings import Settings
from harness.engine import worker_pool
from harness.engine.run import Run
from harness.engine.run_folder import RunFolder
from harness.suite.suite import load_suite
from tests.plugin.project import Project, write_project

pytestmark = pytest.mark.slow

CASE = "vae_decoder/onnxruntime/fp32"


def test_each_case_is_judged_by_its_own_suite(quick):
    for name in ("tight", "loose"):
        write_project(quick.path / name)
        for file in ("parity.toml", "tolerances.toml"):
            (quick.path / name / file).write_text((quick.path / file).read_text())
        test = quick.path / name / "test_parity.py"
        test.rename(test.with_name(f"test_{name}.py"))
    Project(quick.path / "tight").tighten("[onnxruntime.fp32]")

    ended = quick.pytest("tight", "loose")

    ended.check(1, "2 failed, 2 passed")
    assert ended.parity[0].startswith(f" ✗ tight:{CASE}")
    assert ended.has(" 1 of 2 cases agree with PyTorch (weights drawn at random).")
    assert ended.has(f"parity show {quick.reports[0].parent.name} tight:{CASE}")
    quick.parity("show", "last", f"tight:{CASE}").check(1)

    assert quick.parity("show", "last", f"loose:{CASE}").code == 0


def test_each_suite_begins_with_a_line_of_its_own(quick):
    suites = ("one", "two")
    for name in suites:
        write_project(quick.path / name)
        test = quick.path / name / "test_parity.py"
        test.rename(test.with_name(f"test_{name}.py"))

    ended = quick.pytest(*suites)

    lines = ended.text.splitlines()
    heads = [
        at
        for at, line in enumerate(lines)
        if re.match(r"parity: \w+/parity.toml", line)
    ]
    cases = [at for at, line in enumerate(lines) if line.startswith(f" ✓ {CASE}")]
    assert len(heads) == len(cases) == 2, ended.text
    assert heads[0] < cases[0] < heads[1] < cases[1]


def test_a_suite_that_is_done_holds_only_what_is_kept(store, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_pool, "_KEPT", 0)
    monkeypatch.setattr(worker_pool, "_kept", [])
    suite = load_suite(write_project(tmp_path / "app").path)
    here = psutil.Process()
    before = {process.pid for process in here.children(recursive=True)}

    def own():
        children = here.children(recursive=True)
        return [process for process in children if process.pid not in before]

    folder = RunFolder.create(tmp_path / "runs", datetime.now(tz=UTC))
    with Run(suite, Settings(store=str(store)), lambda: folder) as run:
        run.start(suite.cases)
        assert all(not run.record(case).failure for case in suite.cases)
        until = time.monotonic() + 10
        while own() and time.monotonic() < until:
            time.sleep(0.05)

        assert own() == []
