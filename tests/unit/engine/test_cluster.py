"""Cases that wait for a cluster: how many tasks it has at once, and what they keep."""

import gc
import tracemalloc
from collections import deque
from concurrent.futures import Executor, Future, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.case import Case
from harness.engine.cluster import CaseResult, Elsewhere, Place, Task
from harness.engine.engine import record_of
from harness.suite.suite import load_suite

DIGITS = load_suite(Path(__file__).parents[3] / "fixtures" / "digits")
PLACE = Place(store="", read_only=True, limits=DIGITS.limits, mnn_convert=None)
WIDTH = 2


class Nodes(Executor):
    """A cluster that does a task when it is told to."""

    width = WIDTH

    def __init__(self) -> None:
        self.waiting: deque[tuple[Task, Future[Any]]] = deque()
        self.most = 0

    def submit(self, fn: Any, /, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((fn, future))
        self.most = max(self.most, len(self.waiting))
        return future

    def run(self) -> None:
        while self.waiting:
            task, future = self.waiting.popleft()
            record = record_of(task.cases[0])
            future.set_result(
                None if task.prepares else CaseResult(record=record, pictures={})
            )


def copies(number: int) -> list[Case]:
    """Return the cases of one component, and as many others as are wanted."""
    some = [case for case in DIGITS.cases if case.subject == "vae_decoder"]
    return [
        replace(case, component=replace(case.component, name=f"copy{at}"))
        for at in range(number)
        for case in some
    ]


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def elsewhere(nodes: Nodes) -> Elsewhere:
    return Elsewhere(executor=nodes, place=PLACE)


def test_a_cluster_has_few_tasks_at_once_and_does_all(nodes, elsewhere):
    cases = copies(20)

    records = elsewhere.start(cases)
    nodes.run()

    assert nodes.most <= 2 * WIDTH
    assert [one.result().case for one in records] == [case.id for case in cases]


def test_a_record_is_waited_for_though_others_come_before_it(nodes, elsewhere):
    records = elsewhere.start(copies(2))
    last = records[-1]

    with pytest.raises(TimeoutError):
        last.result(timeout=0.01)
    nodes.run()

    assert last in list(as_completed(records))


def test_a_case_that_waits_keeps_less_than_a_kibibyte(nodes, elsewhere):
    elsewhere.start(copies(1))  # imports and caches
    cases = copies(100)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()

    records = elsewhere.start(cases)

    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / len(records) < 1024
    assert nodes.waiting
