"""Values of a rewritten file whose names belong to other values."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from harness.core.case import ITSELF
from harness.core.outcome import Outcome
from harness.core.record import ISOLATED, LAYERS, CaseRecord
from harness.judge.case import judge_case
from harness.measure.align import MASK_END
from harness.measure.compare import compare
from harness.plugins.foreign.rewritten import scaled_by
from tests.unit.judge.test_case import TOLERANCES
from tests.unit.reports import COVERAGE, chain, output, policy_of, record, row

OTHERS_MADE_IT = {
    "by": "names",
    "left_out": [],
    "extra": [],
    "unfed": [],
    "unseen": {},
    "unpaired": {},
    "kinds": {},
}


@pytest.fixture
def judged(tmp_path):
    policy = policy_of(tmp_path, TOLERANCES)

    def judge(*rows, foreign=OTHERS_MADE_IT, coverage=COVERAGE, **about):
        taken = foreign and {**foreign, **about}
        kept = record(*rows, foreign=taken, coverage=coverage).to_json()
        # As it is read again from a run's folder.
        return judge_case(
            CaseRecord.from_json(kept),
            LAYERS,
            policy,
            (),
            min_coverage=0.5,
            today=date(2026, 1, 1),
        )

    return judge


EXPECTED = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(2, 8)


def other(probe, actual, expected=EXPECTED, **about):
    """A row whose value is known."""
    found = compare(expected=expected, actual=actual, floor_rms=1e-3)
    return replace(row(probe, 0, **about), comparison=found)


def scaled(probe, factor, **about):
    return other(probe, factor * EXPECTED, **about)


def test_a_value_whose_readers_and_outputs_agree_is_another_value(judged):
    verdict = judged(*chain(1, 40_000, 2, 1), output(1))
    assert verdict.outcome is Outcome.WITHIN
    assert "v1 (moved or folded)" in verdict.reason
    assert [j.verdict.outcome for j in verdict.rows][1] is Outcome.ANOTHER
    assert verdict.worst.row.probe == "v2"


def test_in_the_harness_own_export_it_is_wrong_whatever_reads_it(judged):
    rows = (*chain(1, 40_000, 2, 1), output(1))
    assert judged(*rows, foreign=None).outcome is Outcome.EXCEEDS
    assert judged(*rows, by=ITSELF).outcome is Outcome.EXCEEDS
    assert judged(*rows).outcome is Outcome.WITHIN


FLAT = EXPECTED.reshape(16, 1, 1, 1)


@pytest.mark.parametrize(
    ("reader", "made", "outcome"),
    [
        pytest.param(1, 1, Outcome.WITHIN, id="all-agree"),
        pytest.param(90, 1, Outcome.SHAPE, id="its-reader-differs"),
        pytest.param(1, 90, Outcome.SHAPE, id="an-output-differs"),
    ],
)
def test_a_value_of_another_shape_may_be_another_value(judged, reader, made, outcome):
    rows = (
        row("a", 1, position=0),
        other("b", FLAT, parents=("a",), position=1),
        row("c", reader, parents=("lost",), position=2),
        output(made),
    )
    counts = {"unseen": {"lost": ["b"]}, "kinds": {}}
    verdict = judged(*rows, foreign=None, coverage=COVERAGE | counts)

    assert verdict.outcome is outcome
    if outcome is Outcome.WITHIN:
        assert "b (of shape [16, 1, 1, 1], not [2, 8])" in verdict.reason
    else:
        assert verdict.first.row.probe == "b"


def test_another_value_is_not_the_loudest_beside_one_that_is_wrong(judged):
    rows = (
        row("a", 1, position=0),
        other("b", FLAT, parents=("a",), position=1),
        row("c", 1, parents=("b",), position=2),
        row("d", 90, parents=("c",), position=3),
        output(90),
    )
    counts = {"unseen": {}, "kinds": {}}
    verdict = judged(*rows, foreign=None, coverage=COVERAGE | counts)

    assert verdict.outcome is Outcome.EXCEEDS
    assert verdict.first.row.probe == "d"


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("its reader differs", (*chain(1, 500, 90, 1), output(1))),
        ("an output differs", (*chain(1, 500, 1, 1), output(90))),
        ("its reader inherits it, within a wide tolerance",
         (*chain(1, 40, 10, 1), output(1))),
        ("an output inherits it, within a wide tolerance",
         (*chain(1, 40), output(10))),
        ("no output was compared", chain(1, 500, 1, 1)),
        ("one of two readers differs",
         (*chain(1, 500, 1), row("w", 90, parents=("v1",), position=3), output(1))),
        ("the other sample's reader differs",
         (*chain(1, 500, 1), *chain(1, 500, 90, sample="s-1"), output(1))),
        ("it is scaled and its reader is otherwise wrong",
         (scaled("a", 0.25), row("b", 90, parents=("a",), position=1), output(1))),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_it_fails_where(judged, why, rows):
    assert judged(*rows).outcome is Outcome.EXCEEDS, why


def test_a_factor_that_is_carried_on_and_taken_back_is_told(judged):
    verdict = judged(
        scaled("q", 0.25),
        scaled("scores", 0.25, parents=("q",), position=1),
        row("softmax", 1, parents=("scores",), position=2),
        output(1),
    )
    assert verdict.outcome is Outcome.WITHIN
    assert "q (scaled by 0.25)" in verdict.reason


def test_readers_are_looked_for_behind_what_was_not_compared(judged):
    rows = (row("v", 500), row("far", 90, parents=("gone",), position=2), output(1))
    assert judged(*rows, unseen={"gone": ["v"]}).first.row.probe == "v"
    agrees = (rows[0], row("far", 1, parents=("gone",), position=2), output(1))
    assert judged(*agrees, unseen={"gone": ["v"]}).outcome is Outcome.WITHIN


def test_a_view_of_another_value_is_one_too(judged):
    rows = (
        row("linear", 500),
        row("view", 500, parents=("linear",), position=1),
        row("matmul", 1, parents=("linear",), position=2),
        output(1),
    )
    assert judged(*rows, kinds={"view": "move"}).outcome is Outcome.WITHIN


def test_a_constant_is_not_excused_by_outputs_alone(judged):
    rows = (row("mask", 500), *chain(1, 1), output(1))
    assert judged(*rows, kinds={"mask": "constant"}).outcome is Outcome.EXCEEDS


def test_a_weaker_mask_is_not_excused_by_its_softmax(judged):
    mask = EXPECTED.copy()
    mask[:, 5:] = -MASK_END
    scores = other("scores", np.maximum(mask, np.float32(-1e4)), mask)
    softmax = row("softmax", 1, parents=("scores",), position=1)
    assert judged(scores, softmax, output(1)).outcome is Outcome.EXCEEDS


def test_a_value_of_another_shape_is_no_pair(judged):
    table = other("table", np.zeros((3, 2, 8), np.float32))
    verdict = judged(table, row("sum", 1, parents=("table",), position=1), output(1))
    assert verdict.outcome is Outcome.WITHIN
    assert "of shape [3, 2, 8], not [2, 8]" in verdict.reason
    assert judged(table, output(90)).outcome is Outcome.SHAPE


def test_where_outputs_differ_what_spoils_nothing_is_not_blamed(judged):
    rows = (
        *chain(1, 40_000, 2),
        row("w", 90, parents=("v2",), position=3),
        row("last", 90, parents=("w",), position=4),
        output(90),
    )
    own = [replace(r, what=ISOLATED) for r in (rows[1], row("v2", 80), rows[3])]
    verdict = judged(*rows, *own)

    assert verdict.outcome is Outcome.EXCEEDS
    assert verdict.first.row.probe == "w"
    assert [j.row.probe for j in verdict.origins] == ["w"]


@pytest.mark.parametrize(("factor", "noise"), [(0.25, 0.0), (-2.0, 0.0), (0.5, 1e-3)])
def test_a_factor_is_one_where_nothing_else_differs(factor, noise):
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(4096).astype(np.float32)
    actual = factor * expected + noise * rng.standard_normal(4096)
    found = scaled_by(compare(expected=expected, actual=actual.astype(np.float32)))
    assert np.isnan(found) if noise else found == pytest.approx(factor)
