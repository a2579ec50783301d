"""A row's required atol is compared at the rtol of the tier that judges it."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import SuiteError
from harness.report.runs.tiers import judges_of, rtol_by
from tests.unit.reports import CASE, chain, output, record
from tests.unit.snapshots import run

DIGITS = Path(__file__).parents[4] / "fixtures" / "digits"
RUN = run(record(*chain(1), output(1)))


def test_it_is_the_tiers_and_0_where_the_tier_states_none():
    rtol = rtol_by(judges_of([RUN], DIGITS), RUN)

    layer, result = RUN.cases[CASE].rows
    assert layer.what == "layers"
    assert rtol(CASE, layer) == 0.0
    assert rtol(CASE, result) in {1e-4, 1e-3}


def test_a_suite_that_is_gone_is_a_sentence_that_says_what_to_name():
    with pytest.raises(SuiteError, match=r"/somewhere/digits.*--suite"):
        judges_of([RUN], None)


def test_two_baselines_do_not_say_where_their_suite_is():
    case = replace(RUN.cases[CASE], suite="")
    nowhere = replace(RUN, cases={CASE: case})

    with pytest.raises(SuiteError, match="--suite"):
        judges_of([nowhere], None)
    with pytest.raises(SuiteError, match=f"which suite {CASE} is of.*--suite"):
        rtol_by({}, nowhere)(CASE, case.rows[0])
