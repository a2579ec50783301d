"""Times that a cluster takes: one task for each component, alone on its node."""

from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from harness.core.errors import ParityError, StageError
from harness.core.outcome import Outcome
from harness.plugins.bench.elsewhere import BenchElsewhere
from harness.plugins.bench.timing import BenchPlan, subjects_of
from harness.plugins.fleet.cluster import NodeSettings
from harness.suite.suite import load_suite
from tests.places import FIXTURES

DIGITS = load_suite(FIXTURES / "digits")
PLACE = NodeSettings(store="", read_only=True, limits=DIGITS.limits, mnn_convert=None)
ORDER = ("vae_decoder", "pipeline", "unet")
GROUPS = list(subjects_of(DIGITS.select(("unet", "vae_decoder"))).values())


class Gone(Executor):
    """A cluster whose nodes are gone."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def submit(self, fn: Any, /, *_: Any, **__: Any) -> Future[Any]:
        self.tasks.append(fn)
        future: Future[Any] = Future()
        future.set_exception(StageError("the node is gone", outcome=Outcome.RUN))
        return future


@pytest.fixture
def gone():
    return Gone()


@pytest.fixture
def timed(gone):
    """What came of the components, by name."""
    bench = BenchElsewhere(executor=gone, place=PLACE, order=ORDER)
    made = bench.each(GROUPS, BenchPlan())
    return {one[0].subject.case.subject: one for one in made}


@pytest.mark.usefixtures("timed")
def test_a_component_is_one_task_that_is_alone_on_its_node(gone):
    assert [list(task.subjects) for task in gone.tasks] == GROUPS
    assert all(task.alone for task in gone.tasks)


@pytest.mark.usefixtures("timed")
def test_the_suite_decides_the_node_and_not_what_else_is_timed(gone):
    numbers = {task.cases[0].subject: task.node_number for task in gone.tasks}

    assert numbers == {one: ORDER.index(one) for one in ("unet", "vae_decoder")}


def test_a_node_that_is_gone_fails_each_time_of_its_component(timed):
    for subjects in GROUPS:
        made = timed[subjects[0].case.subject]
        assert [one.subject for one in made] == subjects
        assert {one.failure for one in made} == {"the node is gone"}


@pytest.mark.usefixtures("timed")
def test_a_node_with_other_versions_times_nothing(gone):
    task = replace(gone.tasks[0], packages={"numpy": "0.1"})

    with pytest.raises(ParityError, match=r"of numpy, .* started with 0\.1; install"):
        task()
