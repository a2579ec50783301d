"""How much of the processor what is timed had to wait for."""

import sys
import time

import pytest

from harness.commands.bench.cpu_time import Clocks
from harness.commands.bench.timing import Plan
from harness.commands.bench.worker import timed_runs
from harness.core.environment import core_count
from harness.report.runs.cpu_load import is_disturbed
from tests.busy import busy_neighbours

PLAN = Plan(warmups=0, least_runs=1, most_runs=10_000, budget_s=1.0)


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


def test_a_system_that_does_not_say_is_not_guessed_at():
    silent = Clocks(wall=0.0, used=0.0, waited=None)
    later = Clocks(wall=2.0, used=3.0, waited=None)

    assert later.cores(since=silent) == 1.5
    assert later.withheld(since=silent) is None
    assert not is_disturbed(None)
