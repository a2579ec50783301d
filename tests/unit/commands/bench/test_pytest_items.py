"""Runs that pytest-benchmark times: a worker runs whenever the pytest process calls."""

import time

import pytest

from harness.commands.bench.pytest_items import Turns
from harness.commands.bench.timing import Plan, Round
from harness.commands.bench.worker import timed_runs
from harness.core.errors import StageError
from harness.core.outcome import Outcome

PLAN = Plan(warmups=1, least_runs=2, most_runs=4, budget_s=1.0)


class Worker:
    """Runs `work` as a worker process does, and keeps when each run was over."""

    def __init__(self, work):
        self.work = work
        self.over = []

    def run(self):
        self.work()
        self.over.append(time.perf_counter())

    def turn(self, caller):
        runs = timed_runs(self.run, PLAN, 1, caller)
        return Round(
            load_s=1.0,
            first_s=1.0,
            **runs._asdict(),
            base_bytes=0,
            peak_bytes=0,
            size_bytes=0,
            ran={},
        )


def test_each_call_is_one_run_and_returns_when_the_run_is_over():
    worker = Worker(lambda: time.sleep(0.02))
    with Turns(worker.turn) as turns:
        assert turns.runs == PLAN.most_runs
        before = len(worker.over)
        begin = time.perf_counter()
        turns.run()
        took = time.perf_counter() - begin

    assert len(worker.over) == before + 1
    assert worker.over[-1] <= begin + took
    assert took >= 0.02


def test_every_turn_has_as_many_runs_as_the_first_and_has_the_times_from_here():
    worker = Worker(lambda: None)
    with Turns(worker.turn) as turns:
        runs = 2 * turns.runs
        for _ in range(runs):
            turns.before_run()
            turns.run()
        rounds = turns.finished([float(number) for number in range(runs)])

    assert [one.runs_s for one in rounds] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert len(worker.over) == runs + 2 * PLAN.warmups


def test_a_slow_run_leaves_room_for_few():
    with Turns(Worker(lambda: time.sleep(0.6)).turn) as turns:
        assert turns.runs == PLAN.least_runs


def refuse():
    msg = "the file is torn"
    raise StageError(msg, outcome=Outcome.LOAD)


def test_a_worker_that_ends_before_it_connects_says_why():
    with pytest.raises(StageError, match="the file is torn"):
        Turns(lambda _: refuse())


def test_a_worker_that_ends_within_a_run_says_why():
    worker = Worker(lambda: None)
    with Turns(worker.turn) as turns:
        worker.work = refuse
        with pytest.raises(StageError, match="the file is torn"):
            turns.run()
