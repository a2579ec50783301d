"""An excerpt shows a divergence only by a value that is out of tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS
from harness.core.settings import Settings
from harness.engine.engine import record_of
from harness.plugins.explain.excerpts import Around, with_local_errors
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS

if TYPE_CHECKING:
    from harness.engine.engine import Engine
    from harness.plugins.explain.excerpt import Excerpt

SUITE = load_suite(DIGITS)


def test_an_excerpt_that_compared_nothing_shows_no_divergence():
    record = record_of(SUITE.cases[0])
    verdict = Judge.of(SUITE, Settings()).check(record, LAYERS)
    assert verdict.found is Outcome.EMPTY
    # The excerpt itself is not looked at.
    excerpt = cast("Excerpt", None)
    assert not Around(excerpt=excerpt, record=record, verdict=verdict).shows


class Refusing:
    """An engine whose runtime refuses the operators on the reference's inputs."""

    def isolate(self, _case, _sample):
        msg = "onnxruntime refuses model.onnx: All inputs to Concat must have same rank"
        raise StageError(msg, outcome=Outcome.LOAD)


def test_operators_that_cannot_run_alone_leave_the_verdict_as_it_was():
    case = SUITE.cases[0]
    record, judge = record_of(case), Judge.of(SUITE, Settings())
    found, verdict = with_local_errors(
        cast("Engine", Refusing()), judge, case, record, case.samples[0]
    )
    assert found == record
    assert verdict == judge.check(record, LAYERS)
