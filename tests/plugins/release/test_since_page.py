"""The page of a run shows what is not as it was in the run's baseline."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.plugins.page.page import page_of, rendered
from harness.plugins.release.diff import Diff, RunChange
from harness.plugins.release.since import since_of
from harness.plugins.release.thresholds import Change
from tests.unit.found import cells
from tests.unit.reports import CASE, chain, output, record


def agreeing():
    return record(*chain(1.0, 2.0, 3.0), output(2.0))


def since(*findings):
    found = Diff(
        before="v1",
        after="now",
        findings=findings,
        files=("a.toml",),
        versions={},
        machines="",
    )
    return since_of(found)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"whole": False}, "Only a part of the suite ran"),
        ({"tier": "quantized"}, "not the suite's own: quantized"),
        ({"changes": ["floors=99"]}, "not the suite's own: floors=99"),
    ],
)
def test_a_run_that_agrees_is_no_release_in_part_or_under_other_bounds(
    found, about, words
):
    same = RunChange(
        case=CASE, what="layers", change=Change.SAME, rows={Change.SAME: 12}
    )
    facts = found(agreeing(), since=since(same))
    head = page_of(replace(facts, about={**facts.about, **about})).headline

    assert head.words == "Parity"
    assert words in head.sentences[-1]


def test_what_changed_since_a_baseline_stands_at_the_top(found):
    words = "atol 1e-5 → 4e-5"
    worse = RunChange(case=CASE, what="layers", change=Change.WORSE, words=words)

    page = page_of(found(agreeing(), exit_code=1, since=since(worse)))
    text = rendered(page, Path())

    assert page.headline.words == "Do not ship"
    assert page.headline.reasons[0].words.startswith("is worse than in the baseline v1")
    assert cells(page.since.table, "how") == [words]
    assert text.index("Since v1") < text.index('id="cases"')


def test_what_cannot_be_compared_has_its_cause_once(found):
    cause = ("the weights of unet changed",)
    other = [
        RunChange(case=CASE, what=what, change=Change.INCOMPARABLE, causes=cause)
        for what in ("layers", "outputs")
    ]

    page = page_of(found(agreeing(), exit_code=1, since=since(*other)))

    (reason,) = page.headline.reasons
    assert "the weights of unet changed, so 2 results cannot" in reason.words
    assert "`parity baseline accept`" in reason.words


def test_a_run_like_its_baseline_says_so_without_a_table(found):
    same = RunChange(
        case=CASE, what="layers", change=Change.SAME, rows={Change.SAME: 12}
    )

    page = page_of(found(agreeing(), since=since(same)))
    text = rendered(page, Path())

    assert page.headline.words == "Ship"
    assert page.since.table is None
    assert "12 rows: 12 same" in text
    assert "files that differ: a.toml" in text
