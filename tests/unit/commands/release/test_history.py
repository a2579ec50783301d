"""A case over the kept runs, with a mark where something moved and what changed."""

import json

import pytest

from harness.commands.release.history import kept_runs, steps
from harness.commands.release.history_page import history_lines
from harness.core.errors import SuiteError
from tests.unit.reports import CASE, output, record
from tests.unit.snapshots import MACHINE, exactly, report, verdict

FAILED = None
"""In the place of an error: nothing came out that could be compared."""

NO_ANSWER = verdict(f"{CASE}/outputs", "convert", "MNN has no such operator")


@pytest.fixture
def keep(tmp_path):
    """Keep runs of one case, so many floors off, a day apart."""
    days = iter(range(1, 29))

    def keep(*errors, case=CASE, machine=MACHINE["id"], packages=None, **about):
        for error in errors:
            id_ = f"2026-11-{next(days):02}T10-00-00"
            here = {"id": machine, "packages": packages or MACHINE["packages"]}
            made = report(
                record(*([] if error is FAILED else [output(error)]), case=case),
                id_=id_,
                environment=MACHINE | here,
                verdicts=[NO_ANSWER] if error is FAILED else (),
                **about,
            )
            (tmp_path / id_).mkdir()
            (tmp_path / id_ / "report.json").write_text(json.dumps(made))

    return keep


def timed(median_ms, metric="latency_ms", count=5, withheld=0.0):
    runs = [median_ms * factor for factor in (1, 1.01, 1, 1.02, 1)][:count]
    about = {"case": CASE, "metric": metric, "withheld": withheld}
    return [{**about, "runs": runs}]


def history(folder, case=CASE, newest=30):
    found, _ = kept_runs(folder, case, newest)
    return list(steps(case, found, exactly))


def page(folder):
    return "\n".join(line.text for line in history_lines(CASE, history(folder)))


def test_the_step_is_marked_with_the_versions_that_changed_there(keep, tmp_path):
    keep(2, 2, 3)
    keep(400, 400, packages={"MNN": "3.7.0", "torch": "2.13.0"})

    marks = [bool(step.moved) for step in history(tmp_path)]

    assert marks == [False, False, False, True, False]
    said = page(tmp_path)
    assert "◆ 2026-11-04T10-00-00" in said
    assert "outputs worse: 1 of 1 value; sample (s-0): 2 floors → 400 floors" in said
    assert "changed there: MNN 3.6.1 → 3.7.0" in said
    assert all(len(line) <= 100 for line in said.splitlines())


def test_the_plot_stands_as_high_as_the_error(keep, tmp_path):
    keep(2, 2, 400)

    (plot,) = [line for line in page(tmp_path).splitlines() if "error  " in line]

    low, same, high = plot.split()[-1]
    assert low == same < high == "█"


def test_a_drift_that_no_two_neighbours_show_is_marked(keep, tmp_path):
    keep(2, 5, 8, 11, 14)

    assert [bool(step.moved) for step in history(tmp_path)] == [
        *(False, False, False),
        *(True, False),
    ]


def test_a_slower_run_is_marked_and_plotted(keep, tmp_path):
    keep(2, benchmarks=timed(10))
    keep(2, benchmarks=timed(15))

    said = page(tmp_path)

    assert "latency  ▇█" in said
    assert "latency_ms worse: 10 → 15 (+50%" in said


def test_a_run_without_an_answer_is_marked_and_hides_no_step(keep, tmp_path):
    keep(2, FAILED, FAILED, 2, 400)

    marks = [bool(step.moved) for step in history(tmp_path)]

    assert marks == [False, True, False, True, True]
    said = page(tmp_path)
    assert "outputs worse: was within, convert: MNN has no such operator" in said
    assert "2 floors → 400 floors" in said


def test_a_case_that_began_without_an_answer_has_its_steps(keep, tmp_path):
    keep(FAILED, 2, 400)

    assert [bool(step.moved) for step in history(tmp_path)] == [False, True, True]


def test_a_run_without_times_hides_no_slower_one(keep, tmp_path):
    keep(2)
    keep(2, benchmarks=timed(10))
    keep(2)
    keep(2, benchmarks=timed(20))

    assert [bool(step.moved) for step in history(tmp_path)] == [
        *(False, False, False),
        True,
    ]
    assert "latency_ms worse: 10 → 20 (+100%" in page(tmp_path)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        pytest.param(timed(10, withheld=0.4), "other work had over", id="disturbed"),
        pytest.param(timed(10, count=3), "3 measurements, and it takes", id="few"),
    ],
)
def test_a_time_without_a_verdict_hides_no_slower_one(keep, tmp_path, first, why):
    keep(2, benchmarks=first)
    keep(2, benchmarks=timed(10))
    keep(2, benchmarks=timed(20))

    assert [bool(step.moved) for step in history(tmp_path)] == [False, False, True]
    assert f"no verdict on its time: {why}" in page(tmp_path)


def test_the_curve_is_of_one_number_of_threads_the_suites_if_it_was_timed(
    keep, tmp_path
):
    alone = timed(30, "latency_at_1_threads_ms")
    keep(2, benchmarks=alone)
    keep(2, benchmarks=[*alone, *timed(10)])

    assert [step.latency for step in history(tmp_path)] == [30, 10]
    assert "1 time of another machine or number of threads" in page(tmp_path)


def test_times_are_held_against_those_of_their_own_machine(keep, tmp_path):
    keep(2, benchmarks=timed(10))
    keep(2, benchmarks=timed(30), machine="bbbb1111")
    keep(2, benchmarks=timed(10))
    keep(2, benchmarks=timed(60), machine="bbbb1111")

    assert [bool(step.moved) for step in history(tmp_path)] == [
        *(False, False, False),
        True,
    ]
    said = page(tmp_path)
    assert "latency_ms worse: 30 → 60 (+100%" in said
    assert "2 times of another machine or number of threads left out" in said


def test_nothing_that_moves_is_said_to_be_so(keep, tmp_path):
    keep(2, 2, 2)

    assert "nothing moved beyond noise" in page(tmp_path)
    assert "no kept run has repeated measurements" in page(tmp_path)


def test_runs_without_the_case_and_unreadable_ones_are_left_out(keep, tmp_path):
    keep(2, case="vae/mnn/fp32")
    keep(2, 3)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "report.json").write_text('{"schema": 1}')

    found, unreadable = kept_runs(tmp_path, CASE, 30)

    assert [one.id[8:10] for one in found] == ["02", "03"]
    assert unreadable == 1


def test_only_the_newest_are_read(keep, tmp_path):
    keep(1, 2, 3)

    assert [step.run[8:10] for step in history(tmp_path, newest=2)] == ["02", "03"]


def test_a_case_that_no_run_has_is_a_sentence_with_those_there_are(keep, tmp_path):
    keep(2)

    with pytest.raises(SuiteError, match=f"has a case 'unet/mnn/fp'; they have {CASE}"):
        history(tmp_path, case="unet/mnn/fp")
    with pytest.raises(SuiteError, match="they have none"):
        kept_runs(tmp_path / "empty", CASE, 30)
