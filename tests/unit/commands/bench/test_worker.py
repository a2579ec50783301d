"""The share of processor time for which a timed worker had to wait."""

import sys
import time

import pytest

from harness.core.environment import core_count
from harness.plugins.bench import worker
from harness.plugins.bench.timing import BenchPlan
from harness.plugins.bench.worker import timed_runs
from harness.report.times import is_disturbed
from tests.busy import busy_neighbours

PLAN = BenchPlan(warmups=0, least_runs=1, most_runs=10_000, budget_s=1.0)


def work():
    until = time.perf_counter() + 0.01
    while time.perf_counter() < until:
        pass


@pytest.mark.skipif(
    sys.platform != "linux", reason="no other system counts what a thread waits"
)
def test_a_neighbour_on_every_core_withholds_processor_time():
    with busy_neighbours():
        runs = timed_runs(work, PLAN, threads=1)

    assert runs.withheld is not None
    assert is_disturbed(runs.withheld)
    assert runs.withheld < 1.0
    assert runs.cores < 0.95


def test_threads_that_wait_for_one_another_are_no_other_work():
    runs = timed_runs(work, PLAN, threads=core_count() + 1)

    assert runs.withheld is None


def test_a_system_that_does_not_say_is_not_guessed_at(monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "_TASKS", tmp_path)

    assert timed_runs(work, PLAN, threads=1).withheld is None
    assert not is_disturbed(None)


@pytest.mark.parametrize(
    ("sleep_s", "runs"), [(0.0, 4), (0.3, 2)], ids=["short", "long"]
)
def test_a_turn_has_runs_until_its_budget_is_spent(sleep_s, runs):
    plan = BenchPlan(warmups=1, least_runs=2, most_runs=4, budget_s=0.2)
    ran: list[int] = []

    def run() -> None:
        ran.append(1)
        time.sleep(sleep_s)

    made = timed_runs(run, plan, threads=1)

    assert len(made.runs_s) == runs
    assert min(made.runs_s) >= sleep_s
    assert len(ran) == plan.warmups + runs
