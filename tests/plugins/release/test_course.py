"""Cases over many runs, with a mark where something moved and what changed there."""

import math
from dataclasses import replace

import pytest
from msgspec import structs

from harness.core.text import FLOORS, screen
from harness.plugins.release.course import course
from harness.plugins.release.screen import course_lines
from tests.unit.reports import CASE, output, record, without_floor
from tests.unit.snapshots import MACHINE, exactly, run, verdict

FAILED = None
"""In the place of an error: nothing came out that could be compared."""

NO_ANSWER = verdict(f"{CASE}/outputs", "convert", "MNN has no such operator")


@pytest.fixture
def runs():
    """Runs of one case, a day apart."""
    return []


@pytest.fixture
def keep(runs):
    """Add runs that are so many floors off."""

    def keep(*errors, machine=MACHINE["id"], packages=None, **about):
        for error in errors:
            here = {"id": machine, "packages": packages or MACHINE["packages"]}
            made = run(
                record(*([] if error is FAILED else [output(error)])),
                id_=f"2026-11-{len(runs) + 1:02}T10-00-00",
                environment=MACHINE | here,
                verdicts=[NO_ANSWER] if error is FAILED else (),
                **about,
            )
            runs.append(made)

    return keep


def timed(median_ms, metric="latency_ms", count=5, withheld=0.0, machine=""):
    runs = [median_ms * factor for factor in (1, 1.01, 1, 1.02, 1)][:count]
    about = {"case": CASE, "metric": metric, "withheld": withheld, "machine": machine}
    return [{**about, "runs": runs}]


def steps(runs):
    return list(course(runs, lambda _: exactly))


def marks(runs):
    """Whether something moved, for each run."""
    return [bool(step.moved) for step in steps(runs)]


def page(runs):
    lines = [line.text for line in screen(course_lines(steps(runs)))]
    assert all(len(line) <= 100 for line in lines)
    return " ".join(" ".join(lines).split())


def test_the_step_is_marked_with_the_versions_that_changed_there(keep, runs):
    keep(2, 2, 3)
    keep(400, 400, packages={"MNN": "3.7.0", "torch": "2.13.0"})

    assert marks(runs) == [False, False, False, True, False]
    said = page(runs)
    assert "◆ 2026-11-04T10-00-00" in said
    assert (
        f"WORSE {CASE}/outputs 1 of 1 value; sample (s-0): 2 floors ({FLOORS}) → 400"
        in said
    )
    assert "changed there: MNN 3.6.1 → 3.7.0" in said
    assert f"{CASE} 2 floors (2 runs) → 3 floors → 400 floors (2 runs)" in said


@pytest.mark.parametrize(
    ("errors", "moved"),
    [
        pytest.param([2, 5, 7, 11, 14], "---◆-", id="a-drift-between-no-two"),
        pytest.param([FAILED, 2, 400], "-◆◆", id="began-without-an-answer"),
    ],
)
def test_each_run_is_compared_with_the_one_in_which_the_result_last_moved(
    keep, runs, errors, moved
):
    keep(*errors)

    assert marks(runs) == [mark == "◆" for mark in moved]


def test_a_slower_run_is_marked(keep, runs):
    keep(2, benchmarks=timed(10))
    keep(2, benchmarks=timed(15))

    said = page(runs)

    assert f"WORSE {CASE}/latency_ms 10 → 15 (+50%" in said


def test_a_run_without_an_answer_is_marked_and_hides_no_step(keep, runs):
    keep(2, FAILED, FAILED, 2, 400)

    assert marks(runs) == [False, True, False, True, True]
    said = page(runs)
    assert "outputs was within, convert: MNN has no such operator" in said
    assert "2 floors → 400 floors" in said


def test_a_run_without_times_hides_no_slower_one(keep, runs):
    keep(2)
    keep(2, benchmarks=timed(10))
    keep(2)
    keep(2, benchmarks=timed(20))

    assert marks(runs) == [False, False, False, True]
    assert "latency_ms 10 → 20 (+100%" in page(runs)


def test_a_picture_that_is_not_finite_is_said(keep, runs):
    keep(2)
    broken = structs.replace(output(2).comparison, rms=math.nan)
    row = replace(output(2), what="image", comparison=broken)
    runs.append(run(record(row), id_="2026-11-09T10-00-00"))

    assert "not finite" in page(runs)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        pytest.param(timed(10, withheld=0.4), "other work had over", id="disturbed"),
        pytest.param(timed(10, count=3), "3 rounds, and it takes", id="few"),
    ],
)
def test_a_time_without_a_verdict_hides_no_slower_one(keep, runs, first, why):
    keep(2, benchmarks=first)
    keep(2, benchmarks=timed(10))
    keep(2, benchmarks=timed(20))

    assert marks(runs) == [False, False, True]
    assert f"no verdict on {CASE}/latency_ms: {why}" in page(runs)


@pytest.mark.parametrize("of_cluster", [False, True])
def test_times_are_compared_with_those_of_their_own_machine(keep, runs, of_cluster):
    for median_ms, machine in ((10, "aaaa"), (30, "bbbb"), (10, "aaaa"), (60, "bbbb")):
        if of_cluster:
            keep(2, benchmarks=timed(median_ms, machine=machine))
        else:
            keep(2, benchmarks=timed(median_ms), machine=machine)

    assert marks(runs) == [False, False, False, True]
    said = page(runs)
    assert "latency_ms 30 → 60 (+100%" in said


def test_nothing_that_moves_is_said_to_be_so(keep, runs):
    keep(2, 2, 2)

    assert f"nothing moved beyond noise in 1 case: {CASE}" in page(runs)


def test_a_case_that_began_without_an_answer_has_its_size_compared(keep, runs):
    keep(FAILED)
    for size in (10 << 20, 20 << 20):
        artifacts = {"mnn": {"size_bytes": size}}
        runs.append(run(record(output(2), artifacts=artifacts), id_=f"run-{size}"))

    assert [change.what for change in steps(runs)[-1].moved] == ["size"]


def test_a_case_that_comes_and_goes_is_told_once_each_time(keep, runs):
    other = [run(record(output(2), case="vae/mnn/fp32"), id_=f"o{n}") for n in "12"]
    keep(2, 2)
    runs[1:1] = other

    moves = [[(one.case, one.change) for one in step.moved] for step in steps(runs)]

    assert moves[1] == [(CASE, "gone"), ("vae/mnn/fp32", "new")]
    assert moves[2] == []
    assert sorted(moves[3]) == [(CASE, "new"), ("vae/mnn/fp32", "gone")]


def test_a_file_without_floors_has_its_error_in_decibels(runs):
    runs.append(run(record(without_floor(output(1.0)))))
    (step,) = steps(runs)
    assert [text.endswith(" dB") for text in step.errors.values()] == [True]
