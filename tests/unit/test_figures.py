"""Figures of benchmarks: the pages say what was kept, and old figures are named."""

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.places import ROOT


@pytest.fixture(scope="module")
def figures():
    path = ROOT / "benchmarks" / "figures.py"
    spec = importlib.util.spec_from_file_location("figures", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kept(figures, tmp_path):
    """A small repository with one figure, and pages that show it."""
    for name in ("benchmarks", "harness/measure", "harness/report", "docs", "reports"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "benchmarks/bench_one.py").write_text("pass\n")
    (tmp_path / "harness/measure/code.py").write_text("one = 1\n")
    (tmp_path / "README.md").write_text("It is <!-- bench:one --><!-- /bench --> now.")
    (tmp_path / "docs/all.md").write_text("<!-- bench:table --><!-- /bench -->\n")
    (tmp_path / "docs/rows.md").write_text("<!-- bench:one rows --><!-- /bench -->\n")
    figures.keep(
        "one",
        script="bench_one.py",
        what="one, against two",
        measured="2.0 × as fast",
        values={"ratio": 2.0},
        code=["measure"],
        rows=[["side", "seconds"], ["one", "2"]],
        root=tmp_path,
    )
    figures.write_pages(tmp_path)
    return tmp_path


def test_pages_say_what_was_kept(figures, kept):
    page = (kept / "docs/all.md").read_text()
    assert "2.0 × as fast" in (kept / "README.md").read_text()
    assert "| one, against two | 2.0 × as fast | `bench_one.py`, " in page
    rows = (kept / "docs/rows.md").read_text().splitlines()
    assert rows[2:-2] == ["| side | seconds |", "| --- | --: |", "| one | 2 |"]
    assert not figures.check(kept)


def test_a_page_that_says_another_figure_is_refused(figures, kept):
    page = kept / "README.md"
    page.write_text(page.read_text().replace("2.0", "3.0"))
    assert figures.check(kept).startswith("README.md: not what reports/benchmarks.json")


@pytest.mark.parametrize(
    ("file", "is_older"),
    [
        ("harness/measure/code.py", True),
        ("benchmarks/bench_one.py", True),
        ("harness/report/code.py", False),
    ],
)
def test_a_figure_is_older_than_its_change(figures, kept, file, is_older, capsys):
    (kept / file).write_text("two = 2\n")
    assert not figures.check(kept)  # which is said, and no reason to fail
    assert ("The figure one is of commit" in capsys.readouterr().out) is is_older


def test_the_pages_of_this_repository_say_what_was_kept():
    script = str(ROOT / "benchmarks" / "figures.py")
    command = [sys.executable, script, "--check"]
    assert subprocess.run(command, check=False).returncode == 0


def test_a_figure_says_where_and_when_it_was_measured(kept):
    (one,) = json.loads((kept / "reports/benchmarks.json").read_text()).values()
    assert {"commit", "machine", "cores", "date", "digest"} <= one.keys()
