"""Which times of two runs are compared, and the message about the others."""

import pytest

from harness.plugins.release.diff import MEMORY, diff
from harness.plugins.release.thresholds import LEAST_ROUNDS, Change, of_times
from harness.report.times import QUIET
from tests.plugins.release.changes import found, text
from tests.unit.reports import CASE, output, record
from tests.unit.snapshots import MACHINE, exactly, off_by, run

TIME = "latency_ms"


def timed(*rounds, beside=(), withheld=None, torch="2.13.0", node="", **machine):
    times = {
        "runs": [1.0, *rounds],
        "rounds": list(rounds),
        "over_pytorch": list(beside),
        "withheld": withheld,
        "machine": node,
    }
    return run(
        record(output(1)),
        benchmarks=[{"case": CASE, "metric": TIME, **times}],
        environment={**MACHINE, **machine, "packages": {"torch": torch}},
    )


STEADY = (10.0, 10.2, 9.9, 10.1, 10.0, 10.3)


@pytest.mark.parametrize(
    ("after", "change"),
    [
        pytest.param(STEADY, Change.SAME, id="equal"),
        pytest.param([13.0, 13.1, 12.9, 13.2, 13.0], Change.WORSE, id="slower"),
        pytest.param([7.0, 7.1, 7.2, 7.0, 7.1], Change.BETTER, id="faster"),
        pytest.param([10.6, 10.7, 10.6, 10.8, 10.7], Change.SAME, id="a-little"),
        pytest.param([10.0, 30.0, 10.1, 40.0, 10.2], Change.SAME, id="a-neighbour"),
        pytest.param([10.1, 14.0, 14.1, 14.0, 14.2], Change.SAME, id="one-lucky"),
        pytest.param([20.0, 20.0], Change.INCOMPARABLE, id="no-spread"),
    ],
)
def test_a_time_is_worse_beyond_the_spread_of_both(after, change):
    assert found(timed(*STEADY), timed(*after), TIME).change is change


def test_two_runs_of_a_build_whose_processes_jump_by_a_third_are_the_same():
    for slow in range(1, 2**6 - 1):
        rounds = [1.6 * (1.33 if slow >> at & 1 else 1.0) for at in range(6)]
        mirrored = [1.6 * (1.0 if slow >> at & 1 else 1.33) for at in range(6)]
        assert of_times(rounds, mirrored) is Change.SAME


def test_a_report_that_does_not_say_its_rounds_is_compared_by_its_runs():
    before, after = (
        run(
            record(output(1)),
            benchmarks=[
                {"case": CASE, "metric": TIME, "runs": [time * one for one in STEADY]}
            ],
        )
        for time in (1.0, 1.5)
    )

    assert found(before, after, TIME).change is Change.WORSE


def test_a_slower_build_is_said_with_both_times_and_their_spread():
    finding = found(timed(*STEADY), timed(13.0, 13.1, 12.9, 13.2, 13.0), TIME)

    assert finding.words == "10.05 → 13 (+29%, rounds within ±2%)"


def test_a_machine_that_is_slower_all_day_slows_pytorch_too():
    before = timed(*STEADY, beside=[0.50, 0.52, 0.49, 0.51, 0.50, 0.50])
    busy = [2 * time for time in STEADY]

    same = timed(*busy, beside=[0.51, 0.50, 0.50, 0.52, 0.49, 0.51])
    assert found(before, same, TIME).change is Change.SAME

    slower = timed(*busy, beside=[0.65, 0.66, 0.64, 0.65, 0.67, 0.65])
    finding = found(before, slower, TIME)
    assert finding.change is Change.WORSE
    assert finding.words == (
        "10.05 → 20.1 (+100%, rounds within ±4%); "
        "0.5 → 0.65 (+30%, rounds within ±3%) of PyTorch's beside it"
    )


def test_a_neighbour_that_slows_pytorch_more_than_the_file_says_nothing_of_it():
    before = timed(*STEADY, beside=[0.50, 0.52, 0.49, 0.51, 0.50, 0.50])
    after = timed(
        *(1.6 * t for t in STEADY), beside=[0.12, 0.13, 0.12, 0.11, 0.12, 0.1]
    )

    assert found(before, after, TIME).change is Change.SAME
    assert found(after, before, TIME).change is Change.SAME


def test_another_pytorch_is_no_unit_of_time():
    before = timed(*STEADY, beside=[0.5] * 6)
    faster_torch = timed(*STEADY, beside=[1.0] * 6, torch="2.14.0")

    assert found(before, faster_torch, TIME).change is Change.SAME


def test_too_few_measurements_are_no_verdict_and_are_not_held_against_a_run():
    before, after = timed(10.0), timed(99.0)

    assert diff(before, after, exactly).blocking == []
    said = " ".join(text(before, after).split())
    assert f"it takes {LEAST_ROUNDS} to know their spread" in said


def test_another_machine_has_no_verdict_on_time_and_one_on_errors():
    before = timed(*STEADY)
    after = timed(*(10 * t for t in STEADY), id="bbbb1111", cpu="Another")

    assert found(before, after).change is Change.SAME
    assert found(before, after, TIME).change is Change.INCOMPARABLE
    assert found(before, after, MEMORY).change is Change.INCOMPARABLE
    assert diff(before, after, exactly).blocking == []
    said = " ".join(text(before, after).split())
    assert "another machine: A processor, 2 cores before, Another, 2 cores now" in said
    assert (
        "errors are compared in noise floors, time and memory of two machines are not"
        in said
    )


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param({"node": "a"}, {"node": "a"}, Change.WORSE, id="one-node"),
        pytest.param({"node": "a"}, {"node": "b"}, Change.INCOMPARABLE, id="two"),
        pytest.param({}, {"node": "b"}, Change.INCOMPARABLE, id="only-now"),
        pytest.param(
            {"node": "a"}, {"node": "a", "id": "b"}, Change.WORSE, id="another-desk"
        ),
    ],
)
def test_times_of_a_cluster_are_compared_where_one_node_took_both(
    before, after, change
):
    slow = [2 * time for time in STEADY]

    assert found(timed(*STEADY, **before), timed(*slow, **after), TIME).change is change


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(
            0.3, 0.0, "in the run before: other work had over 5%", id="before"
        ),
        pytest.param(0.0, 0.3, "in this run: other work had over 5%", id="after"),
        pytest.param(0.3, 0.3, "in the run before and this run: other", id="both"),
    ],
)
def test_a_time_that_other_work_disturbed_has_no_verdict(before, after, words):
    slow = [2 * time for time in STEADY]

    finding = found(timed(*STEADY, withheld=before), timed(*slow, withheld=after), TIME)

    assert finding.change is Change.INCOMPARABLE
    assert words in finding.words


def test_a_time_that_nothing_disturbed_has_one():
    slow = [2 * time for time in STEADY]

    finding = found(timed(*STEADY, withheld=0.0), timed(*slow, withheld=QUIET), TIME)

    assert finding.change is Change.WORSE


def test_times_without_a_verdict_are_named_with_how_many_there_are():
    before, after = (
        run(
            record(output(1)),
            benchmarks=[
                {"case": case, "metric": TIME, "runs": STEADY, "withheld": withheld}
                for case in ("unet/mnn/fp32", "vae/mnn/fp32", "vae/mnn/int8")
            ],
        )
        for withheld in (0.0, 0.4)
    )

    said = " ".join(text(before, after).split())

    assert (
        "no verdict on unet/mnn/fp32/latency_ms and 2 more: in this run: other" in said
    )


def test_a_run_without_repeated_measurements_says_that_time_has_no_verdict():
    assert "no verdict on time" in text(off_by(1), off_by(1))
