"""Items for pytest-benchmark: a worker runs when the pytest process calls."""

import time

import pytest

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.bench.pytest_items import Served
from harness.plugins.bench.timing import BenchPlan
from harness.plugins.bench.worker import timed_runs

WARMUPS = 2


class Worker:
    """Runs `work` as a worker process does, and counts."""

    def __init__(self, work):
        self.work = work
        self.over = 0

    def run(self):
        self.work()
        self.over += 1

    def turn(self, caller):
        return timed_runs(self.run, BenchPlan(warmups=WARMUPS), 1, caller)


def test_each_call_is_one_run_and_returns_when_the_run_is_over():
    worker = Worker(lambda: time.sleep(0.02))
    with Served(worker.turn) as served:
        assert worker.over == WARMUPS
        begin = time.perf_counter()
        served.run()
        took = time.perf_counter() - begin
        assert worker.over == WARMUPS + 1
        assert served.ended().runs_s == ()

    assert took >= 0.02


def refuse():
    msg = "the file is torn"
    raise StageError(msg, outcome=Outcome.LOAD)


def test_a_worker_that_ends_before_it_connects_says_why():
    served = Served(lambda _: refuse())

    with pytest.raises(StageError, match="the file is torn"), served:
        served.run()


def test_a_worker_that_ends_within_a_run_says_why():
    worker = Worker(lambda: None)
    with Served(worker.turn) as served:
        worker.work = refuse
        with pytest.raises(StageError, match="the file is torn"):
            served.run()
