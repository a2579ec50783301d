"""A run never makes a suite load; the user does, by the folder or by --suite."""

import json

import pytest

from harness.commands.cli import cli
from harness.engine.finished_run import load_report
from harness.report.suites import suites_for
from tests.unit.finished import ID, TOLERANCES, called, run_in, suite_in, told_of
from tests.unit.reports import CASE, output
from tests.unit.tunings import case_of

STRICT = TOLERANCES.replace("50.0", "0.5")
SHARD = {"number": 1, "of": 1}


@pytest.fixture
def downloaded(tmp_path):
    """The run of a suite that lies elsewhere on this machine, with a recipe."""
    suite = suite_in(tmp_path / "elsewhere" / "digits") / "parity.toml"
    key = [str(suite), CASE]
    data = told_of(suite, shard={**SHARD, "own": [key], "divided": [key]})
    (tmp_path / "here").mkdir()
    return run_in(tmp_path / "here" / "run", data)


def loaded(folder):
    return any(folder.rglob("loaded"))


READING = {
    "show": (("show", "run"), 0),
    "case": (("show", "run", CASE), 0),
    "report": (("report", "run"), 0),
    "nodes": (("nodes", "run", CASE), 0),
    "card": (("card", "run", "--store", "store"), 2),
    "merge": (("merge", "run"), 2),
}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(words, code, id=name)
        for name, (words, code) in READING.items()
        if words[0] in cli.commands  # a plug-in's may be taken away
    ],
)
@pytest.mark.usefixtures("downloaded")
def test_a_run_from_elsewhere_loads_no_suite(tmp_path, capsys, words, code):
    ended, text = called(capsys, tmp_path / "here", *words)
    assert ended == code, text
    assert "--suite" in text
    assert not loaded(tmp_path)


@pytest.mark.skipif("gate" not in cli.commands, reason="the plug-in is taken away")
def test_a_run_from_elsewhere_is_gated_without_its_suite(downloaded, tmp_path, capsys):
    here = tmp_path / "here"
    before = json.loads((downloaded / "report.json").read_text()) | {"id": "before"}
    run_in(here / "before", before)
    accept = ("baseline", "accept", "before", "--who", "A. Reviewer")
    assert called(capsys, here, *accept)[0] == 0

    differed, _ = called(capsys, here, "diff", "before", "run")
    gated, _ = called(capsys, here, "gate", "run")

    assert (differed, gated) == (0, 0)
    assert not loaded(tmp_path)


def test_a_tuning_loads_no_suite(tmp_path, capsys):
    suite = suite_in(tmp_path / "elsewhere") / "parity.toml"
    here = tmp_path / "here"
    run_in(here / "reports" / "tuning" / ID, told_of(suite, case_of(output(1))))
    ended, text = called(capsys, here, "tune", "--from", "last")
    assert (ended, loaded(tmp_path)) == (2, False), text
    assert "name the suite with --suite" in text


@pytest.mark.usefixtures("downloaded")
def test_a_run_from_elsewhere_is_judged_as_it_was(tmp_path, capsys):
    """By its own tolerances, not by those that its suite has today."""
    (tmp_path / "elsewhere" / "digits" / "tolerances.toml").write_text(STRICT)
    code, text = called(capsys, tmp_path / "here", "show", "run")
    assert code == 0, text
    assert f"`parity show {ID} --suite SUITE`" in " ".join(text.split())


@pytest.mark.usefixtures("downloaded")
def test_the_suite_that_is_named_judges_a_run(tmp_path, capsys):
    suite = suite_in(tmp_path / "mine", STRICT)
    code, text = called(capsys, tmp_path / "here", "show", "run", "--suite", suite)
    assert code == 1, text
    assert (suite / "loaded").exists()


def test_a_run_that_keeps_no_tolerances_needs_its_suite(tmp_path, capsys):
    suite = suite_in(tmp_path / "elsewhere") / "parity.toml"
    run_in(tmp_path / "run", told_of(suite, tolerances=None))
    code, text = called(capsys, tmp_path, "show", "run")
    assert (code, loaded(tmp_path)) == (2, False)
    assert "the run keeps no tolerances; name it with --suite" in text


def own(tmp_path):
    """A run in its suite's own folder."""
    suite = suite_in(tmp_path / "digits")
    run = suite / "reports" / "runs" / ID
    return suite, run_in(run, told_of(suite / "parity.toml"))


def moved(tmp_path):
    """A run that another machine made of this suite, beside the suite's own runs."""
    suite = suite_in(tmp_path / "digits")
    run = suite / "reports" / "runs" / ID
    return suite, run_in(run, told_of("/ci/build/digits/parity.toml"))


def placed_elsewhere(tmp_path):
    """A run in another folder that names the suite in the current folder."""
    suite = suite_in(tmp_path / "digits")
    return suite, run_in(tmp_path / "run", told_of(suite / "parity.toml"))


def other_name(tmp_path):
    """A run of another suite among the runs of the suite in the current folder."""
    suite = suite_in(tmp_path / "digits")
    run = suite / "reports" / "runs" / ID
    return suite, run_in(run, told_of("/ci/build/letters/parity.toml"))


def beside_the_report(tmp_path):
    """A suite that was sent with a run, in the run's own folder."""
    suite = suite_in(tmp_path / "digits")
    (suite / "report.json").write_text(json.dumps(told_of(suite / "parity.toml")))
    return suite, suite


def around_the_folder(tmp_path):
    """A suite that was sent below a run's folder."""
    suite = suite_in(tmp_path / "run" / "digits")
    (tmp_path / "run" / "report.json").write_text(
        json.dumps(told_of(suite / "parity.toml"))
    )
    return suite, tmp_path / "run"


@pytest.mark.parametrize(
    ("made", "found"),
    [
        pytest.param(own, True, id="own"),
        pytest.param(moved, True, id="moved"),
        pytest.param(placed_elsewhere, True, id="placed-elsewhere"),
        pytest.param(other_name, False, id="other-name"),
        pytest.param(beside_the_report, False, id="beside-the-report"),
        pytest.param(around_the_folder, False, id="around-the-folder"),
    ],
)
def test_the_suite_here_is_that_of_its_own_runs(tmp_path, monkeypatch, made, found):
    suite, run = made(tmp_path)
    monkeypatch.chdir(suite)
    assert bool(suites_for(load_report(tmp_path, str(run)))) == found
    assert (suite / "loaded").exists() == found


def test_a_run_of_ones_own_is_judged_by_the_tolerances_of_today(tmp_path, capsys):
    suite, run = own(tmp_path)
    (suite / "tolerances.toml").write_text(STRICT)
    code, text = called(capsys, suite, "show", run)
    assert code == 1, text
    assert "the run keeps" not in text
