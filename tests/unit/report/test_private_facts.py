"""What a run writes has no secret of a store's URL and no personal path."""

import shutil
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.commands.cli import cli, main
from harness.core import private
from harness.core.record import OUTPUTS
from harness.core.settings import Settings
from harness.core.shown import print_lines
from harness.engine.finished_run import load_report
from harness.engine.kept import kept
from harness.engine.run import path_of
from harness.engine.run_folder import RunFolder
from harness.report.finish import conclude
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.unit.reports import chain, output, record

BERT = FIXTURES / "text_tasks" / "bert"
PLANTED = "qT9sEcReT"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of the user's own, in which the suite lies."""
    folder = tmp_path / "homes" / "somebody"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    private._own.cache_clear()
    yield folder
    private._own.cache_clear()


@pytest.fixture
def run(home):
    """A run of a suite at home, on a shared store whose URL has a signature."""
    suite = load_suite(shutil.copytree(BERT, home / "models" / "bert"))
    folder = suite.path.parent
    case = suite.cases[0].id
    url = f"https://host.example/store?sv=1&sig={PLANTED}"
    rows = [replace(one, source=f"{folder}/net.py:7") for one in chain(1000, 2000)]
    found = record(*rows, output(5000), case=case, log=f"at {folder}/x, {url}")
    made = RunFolder.create(folder / "reports/runs", datetime.now(UTC))
    made.record_once((path_of(suite), case), lambda: kept(found))
    with chdir(home):
        lines, _ = conclude(
            made,
            [suite],
            Settings(store=url, runs=str(folder / "reports/runs")),
            asked=[(path_of(suite), case, what) for what in ("layers", OUTPUTS)],
            argv=["parity", "run", "--suite", str(suite.path), "--store", url],
            about={},
        )
    print_lines(lines)
    return made.path


WRITTEN = [
    *("report.json", "summary.md"),
    *(["report.html"] if "report" in cli.commands else []),  # a plug-in's
]


@pytest.mark.parametrize("name", WRITTEN)
def test_no_file_of_a_run_has_the_signature_or_the_home(name, run, home):
    text = (run / name).read_text()
    assert PLANTED not in text
    assert str(home) not in text


def test_the_screen_has_no_signature(capsys, run):
    assert run.is_dir()
    said = capsys.readouterr().out
    assert "--store 'https://host.example/store?…'" in said
    assert PLANTED not in said


def test_a_failure_tells_its_line_of_the_own_module(run):
    text = "".join((run / name).read_text() for name in WRITTEN)
    assert "bert/net.py:7" in text
    assert "/srv/bert/net.py:7" not in text


def test_a_suite_at_home_is_told_from_there_and_found_again(run, home, monkeypatch):
    monkeypatch.chdir(home / "models" / "bert")
    assert list(load_report(run.parent, "last").suites) == ["~/models/bert/parity.toml"]
    assert path_of(load_suite(Path("parity.toml"))) == "~/models/bert/parity.toml"
    assert main(["show", "last"]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["store", "list", "--store"],
        ["store", "push"],
        ["store", "pull"],
        ["run", "--suite", str(BERT), "--store"],
    ],
)
def test_a_store_is_told_without_its_signature(words, capsys, home, monkeypatch):
    monkeypatch.chdir(home)
    # No package reads it, so fsspec's own words have the URL too.
    assert main([*words, f"nosuch://key:{PLANTED}@host/p?sig={PLANTED}"]) == 2
    assert main([*words, f"file:///proc/no/p?sig={PLANTED}"]) == 2
    said = capsys.readouterr()
    assert "://" in said.err
    assert PLANTED not in said.out + said.err
