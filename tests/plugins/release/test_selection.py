"""Which runs are compared, and the tolerances that judge them."""

import json
import shutil
from dataclasses import replace
from datetime import date

import pytest

from harness.core.errors import ParityError, SuiteError
from harness.core.outcome import Outcome
from harness.judge.case import CaseVerdict
from harness.plugins.release.baseline import accept, path_of, save_baseline
from harness.plugins.release.diff import diff, rtol_by
from harness.plugins.release.selection import (
    compared_names,
    load_either,
    load_many,
    with_verdicts,
)
from harness.report.suites import judges_beside
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.unit.reports import CASE, chain, output, record
from tests.unit.snapshots import exactly, off_by, report, run

RUN = run(record(*chain(1), output(1)))


def accepted(run):
    when = date(2026, 11, 21)
    return accept(run, name="digits", who="A. Reviewer", why="", when=when)


def test_runs_and_baselines_are_named_in_one_way(tmp_path):
    save_baseline(accepted(off_by(1)), tmp_path / "baselines")
    folder = tmp_path / "runs" / "2026-11-20T10-00-00"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report(record(output(2)))))
    runs = tmp_path / "runs"

    for name in ("digits", str(path_of(tmp_path / "baselines", "digits")), "last"):
        assert list(load_either(runs, name).cases) == [CASE]
    with pytest.raises(ParityError, match="There is no run 'none'"):
        load_either(runs, "none")


def test_a_check_that_passes_today_is_no_change_whatever_was_said_of_it_then():
    before = off_by(1)
    (key,) = before.ends
    then = before.ends[key]
    strict = replace(before, ends={key: replace(then, outcome="exceeds")})
    suite, case, what = key
    today = CaseVerdict(
        suite=suite,
        case=case,
        what=what,
        outcome=Outcome.WITHIN,
        found=Outcome.WITHIN,
        reason="",
        worst=None,
        first=None,
        inputs=(),
        rows=(),
    )

    assert diff(before, strict, exactly).blocking
    assert not diff(before, with_verdicts(strict, [today]), exactly).blocking


@pytest.fixture
def runs(tmp_path):
    """Three runs, of which the second is of another suite, and a baseline of one."""
    for day, suite in ((1, "digits"), (2, "other"), (3, "digits")):
        id_ = f"2026-11-0{day}T00-00-00"
        folder = tmp_path / "runs" / id_
        folder.mkdir(parents=True)
        data = report(record(output(day)), id_=id_)
        text = json.dumps(data).replace("/digits/parity.toml", f"/{suite}/parity.toml")
        (folder / "report.json").write_text(text, encoding="utf-8")
    last = load_either(tmp_path / "runs", "last")
    save_baseline(accepted(last), tmp_path / "baselines")
    return tmp_path / "runs"


def compared(runs, *names, last=None):
    chosen, _ = compared_names(names, last, runs)
    return [run.id[8:10] for run in load_many(runs, chosen)]


@pytest.mark.parametrize(
    ("names", "last", "days"),
    [
        # The run between them is of another suite.
        pytest.param(["last"], None, ["01", "03"], id="last"),
        pytest.param([], 2, ["01", "03"], id="two"),
        pytest.param([], 30, ["01", "03"], id="many"),
        pytest.param(["2026-11-01T00-00-00"], None, ["01", "03"], id="one"),
        pytest.param(
            ["2026-11-02T00-00-00", "digits"], None, ["02", "03"], id="baseline"
        ),
    ],
)
def test_runs_are_chosen_by_name_or_number(runs, names, last, days):
    assert compared(runs, *names, last=last) == days


@pytest.mark.parametrize(
    ("names", "last", "words"),
    [
        (
            ["last", "last"],
            None,
            "are both run 2026-11-03T00-00-00.*`parity diff last`",
        ),
        (["2026-11-03T00-00-00"], None, "are both run 2026-11-03T00-00-00"),
        (["digits"], None, "are both run 2026-11-03T00-00-00"),
        (["digits", "digits"], None, "are both run 2026-11-03T00-00-00"),
        (["digits", "2026-11-01T00-00-00", "last"], None, "are both run"),
        ([], None, "name runs or baselines"),
        (["last"], 3, "name runs or baselines"),
    ],
)
def test_a_run_is_not_compared_with_itself(runs, names, last, words):
    with pytest.raises(ParityError, match=words):
        compared(runs, *names, last=last)


def test_a_run_without_an_earlier_one_is_a_sentence(runs):
    shutil.rmtree(runs / "2026-11-01T00-00-00")

    with pytest.raises(ParityError, match="no run of its suite before 2026-11-03"):
        compared(runs, "last")


def test_runs_of_another_version_are_counted(runs):
    broken = runs / "2026-11-02T01-00-00"
    broken.mkdir()
    (broken / "report.json").write_text('{"schema": 1}')

    assert compared_names((), 30, runs)[1] == 1


def test_the_rtol_is_the_tiers_and_0_where_the_tier_states_none():
    rtol = rtol_by(judges_beside(RUN, [load_suite(DIGITS)]), RUN)

    layer, result = RUN.cases[CASE].record.rows
    assert layer.what == "layers"
    assert rtol(CASE, layer) == 0.0
    assert rtol(CASE, result) in {1e-4, 1e-3}


def test_a_suite_that_is_gone_is_a_sentence_that_says_what_to_name():
    with pytest.raises(SuiteError, match=r"/somewhere/digits.*--suite"):
        judges_beside(RUN, [])


def test_two_baselines_do_not_say_where_their_suite_is():
    nowhere = accepted(RUN).report

    with pytest.raises(SuiteError, match="--suite"):
        judges_beside(nowhere, [])
    with pytest.raises(SuiteError, match=f"which suite {CASE} is of.*--suite"):
        rtol_by({}, nowhere)(CASE, RUN.cases[CASE].record.rows[0])
