"""The share of processor time for which a timed worker had to wait."""

import sys
import time

import pytest

from harness.core.environment import core_count
from harness.plugins.bench import worker
from harness.plugins.bench.timing import BenchPlan
from harness.plugins.bench.worker import watched
from harness.report.times import is_disturbed
from tests.busy import busy_neighbours


def work():
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until:
        pass


@pytest.mark.skipif(
    sys.platform != "linux", reason="no other system counts what a thread waits"
)
def test_a_neighbour_on_every_core_withholds_processor_time():
    with busy_neighbours():
        _, cores, withheld = watched(work, threads=1)

    assert withheld is not None
    assert is_disturbed(withheld)
    assert withheld < 1.0
    assert cores < 0.95


def test_threads_that_wait_for_one_another_are_no_other_work():
    _, _, withheld = watched(work, threads=core_count() + 1)

    assert withheld is None


def test_a_system_that_does_not_say_is_not_guessed_at(monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "_TASKS", tmp_path)

    _, _, withheld = watched(work, threads=1)

    assert withheld is None
    assert not is_disturbed(None)


@pytest.mark.parametrize(
    ("sleep_s", "runs"), [(0.0, 4), (0.3, 2)], ids=["short", "long"]
)
def test_a_turn_has_runs_until_its_budget_is_spent(sleep_s, runs):
    plan = BenchPlan(least_runs=2, most_runs=4, budget_s=0.2)

    made = worker.counted_runs(lambda: time.sleep(sleep_s), plan)

    assert len(made) == runs
    assert min(made) >= sleep_s
