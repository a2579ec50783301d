"""Times that a cluster takes: one task for each component, alone on its node."""

from concurrent.futures import Future
from typing import Any

import pytest

from harness.core.errors import ParityError, StageError
from harness.core.outcome import Outcome
from harness.core.settings import Settings
from harness.engine.executors import CaseExecutor
from harness.plugins.bench.elsewhere import each, times_there
from harness.plugins.bench.timing import BenchPlan, subjects_of
from harness.suite.suite import load_suite
from tests.places import FIXTURES

DIGITS = load_suite(FIXTURES / "digits")
GROUPS = list(subjects_of(DIGITS.select(("unet", "vae_decoder"))).values())


class Gone(CaseExecutor):
    """A cluster whose nodes are gone."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def engine(self, *_: Any) -> Any:
        raise NotImplementedError

    def alone(self, *asked: Any) -> Future[Any]:
        self.asked.append(asked)
        future: Future[Any] = Future()
        future.set_exception(StageError("the node is gone", outcome=Outcome.RUN))
        return future


@pytest.fixture
def gone():
    return Gone()


@pytest.fixture
def timed(gone):
    """What came of the components, by name."""
    made = each(gone, DIGITS, Settings(), GROUPS, BenchPlan())
    return {one[0].subject.case.subject: one for one in made}


@pytest.mark.usefixtures("timed")
def test_the_suite_decides_the_node_and_not_what_else_is_timed(gone):
    order = list(dict.fromkeys(case.subject for case in DIGITS.tested))
    numbers = {cases[0].subject: number for *_, cases, number in gone.asked}

    assert numbers == {one: order.index(one) for one in ("unet", "vae_decoder")}


def test_a_node_that_is_gone_fails_each_time_of_its_component(timed):
    for subjects in GROUPS:
        made = timed[subjects[0].case.subject]
        assert [one.subject for one in made] == subjects
        assert {one.failure for one in made} == {"the node is gone"}


def test_a_node_with_other_versions_times_nothing():
    engine: Any = None
    with pytest.raises(ParityError, match=r"n has .* of numpy, .* with 0\.1; install"):
        times_there(GROUPS[0], BenchPlan(), {"numpy": "0.1"}, engine, "n")
