"""An excerpt shows a divergence only by a value that is out of tolerance."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS
from harness.core.settings import Settings
from harness.engine.engine import record_of
from harness.measure.compare import compare
from harness.plugins.explain.excerpts import Around, error_in_floors, with_local_errors
from harness.plugins.explain.explain import moved
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.unit.reports import row

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


def test_an_error_is_infinite_where_values_are_not_finite():
    """The finite ones may all agree, and no setting that keeps a NaN changes it."""
    right = row("v", 2)
    made = np.array([[np.nan, 1.0], [2.0, 3.0]])
    lost = compare(expected=np.arange(4.0).reshape(2, 2), actual=made, floor_rms=1e-3)

    assert error_in_floors(right) == pytest.approx(2, rel=1e-3)
    assert error_in_floors(replace(right, comparison=lost)) == math.inf
    assert moved(2.0, math.inf)
    assert moved(math.inf, 2.0)
    assert not moved(math.inf, math.inf)
    assert moved(math.nan, 2.0)
