"""The gate passes or blocks a release, and gives each reason once."""

from dataclasses import replace
from datetime import date

import pytest

from harness.core.outcome import Outcome
from harness.core.text import screen
from harness.judge.known_gaps import Gap
from harness.plugins.release.baseline import accept
from harness.plugins.release.diff import diff
from harness.plugins.release.gate import (
    CANNOT_SAY,
    DO_NOT_SHIP,
    SHIP,
    decide,
    gate_lines,
    gate_markdown,
)
from tests.unit.found import verdicts_of
from tests.unit.reports import CASE, chain, output, record
from tests.unit.snapshots import exactly, run, verdict

TODAY = date(2026, 11, 21)
TIERS = "".join(
    f"[mnn.{name}]\nwhy = 'a test'\noutputs = {{ floors = 16.0 }}\n"
    "layers = { floors = 16.0 }\n"
    for name in ("fp32", "int8")
)
GAP = Gap(
    case=f"{CASE}/outputs",
    outcome=Outcome.EXCEEDS,
    why="the converter fuses it",
    issue="31",
    until=date(2027, 1, 1),
    who="B. Owner",
    source="known_gaps.toml:3",
)


def decided(
    before,
    after,
    tmp_path,
    *,
    gaps=(),
    stale=(),
    today=TODAY,
    why="",
    lacks=False,
    **about,
):
    """What the gate says of `after`, compared with `before` as a baseline.

    `lacks` says whether `after` lacks cases of its suite.
    """
    text = (
        '[mnn.fp32]\nwhy = "a test"\n'
        "outputs = { floors = 16.0 }\nlayers = { floors = 16.0 }\n"
    )
    kept = run(before, **about)
    reviewed = accept(kept, name="digits", who="A. Reviewer", why=why, when=TODAY)
    whats = dict.fromkeys(row.what for row in after.rows or before.rows)
    verdicts = verdicts_of(
        tmp_path, after, text=text, whats=whats, gaps=gaps, today=today
    )
    told = [verdict(v.id, v.outcome.value, v.reason) for v in verdicts]
    later = run(after, verdicts=told, id_="2026-11-21T10-00-00")
    return decide(
        reviewed,
        diff(reviewed.report, later, exactly),
        verdicts,
        names={after.key: after.case},
        stale=stale,
        whole=not lacks,
    )


def page(decision):
    return "\n".join(line.text for line in screen(gate_lines(decision)))


def kinds(decision):
    return [(reason.name, reason.kind) for reason in decision.reasons]


GAPS = {"verdicts": [verdict(f"{CASE}/outputs", "gap")], "gaps": [GAP]}


@pytest.mark.parametrize(
    ("before", "after", "about", "kind", "words"),
    [
        pytest.param(
            *(record(output(2)), record(output(12)), {}, "worse"),
            ["2 floors → 12 floors"],
            id="worse-within-its-tolerance",
        ),
        pytest.param(
            *(record(output(2)), record(output(99)), {}, "exceeds"),
            ["99 floors, allowed 16", "2 floors → 99 floors"],
            id="fails",
        ),
        pytest.param(
            *(record(output(99)), record(output(999)), GAPS, "worse"),
            ["99 floors → 999 floors"],
            id="a-gap-that-grows",
        ),
        pytest.param(
            *(record(output(99)), record(output(99))),
            *(GAPS | {"today": date(2027, 1, 2)}, "stale-gap"),
            ["gap expired 2027-01-01 (issue 31), accepted by B. Owner"],
            id="a-gap-that-has-expired",
        ),
        pytest.param(
            record(output(2)),
            record(failure={"outcome": "convert", "message": "No such operator."}),
            *({}, "convert"),
            ["No such operator."],
            id="no-longer-converts-and-is-the-only-case",
        ),
    ],
)
def test_what_does_not_ship_is_one_reason_with_what_it_was(  # noqa: PLR0917
    before, after, about, kind, words, tmp_path
):
    decision = decided(before, after, tmp_path, **about)

    assert decision.code == DO_NOT_SHIP
    assert kinds(decision) == [(f"{CASE}/outputs", kind)]
    assert all(one in decision.reasons[0].words for one in words)


def test_what_fails_says_where_it_first_diverges(tmp_path):
    before = record(*chain(1, 1, 1), output(1))
    after = record(*chain(1, 400, 900), output(1))

    decision = decided(before, after, tmp_path)

    assert "first at net.v1" in decision.reasons[0].words


def test_a_case_that_is_gone_is_one_reason(tmp_path):
    other = record(*chain(1), output(1), case="vae/mnn/fp32")

    decision = decided(
        record(*chain(1), output(1)),
        other,
        tmp_path,
    )

    assert (CASE, "gone") in kinds(decision)
    assert len(decision.reasons) == 1


def test_a_run_without_what_is_new_in_the_suite_does_not_ship(tmp_path):
    same = record(output(2))

    decision = decided(same, same, tmp_path, lacks=True)
    assert decision.code == DO_NOT_SHIP
    assert kinds(decision) == [("the run", "partial")]
    assert "lacks some of its checks" in decision.reasons[0].words

    # Somebody said why a part is enough.
    of_part = {"whole": False, "why": "the rest is run at night", "lacks": True}
    assert decided(same, same, tmp_path, **of_part).code == SHIP


def test_a_failure_accepted_with_the_baseline_ships_while_it_is_no_worse(tmp_path):
    wrong = record(output(99))
    about = {"verdicts": [verdict(f"{CASE}/outputs", "exceeds")], "why": "only a demo"}

    decision = decided(wrong, wrong, tmp_path, **about)
    assert decision.code == SHIP
    assert "only a demo (with the baseline)" in page(decision)

    decision = decided(wrong, record(output(999)), tmp_path, **about)
    assert kinds(decision) == [(f"{CASE}/outputs", "exceeds")]


def test_a_failure_accepted_with_the_baseline_does_not_ship_as_another_failure(
    tmp_path,
):
    wrong = record(output(99))
    about = {"verdicts": [verdict(f"{CASE}/outputs", "misread")], "why": "only a demo"}

    decision = decided(wrong, wrong, tmp_path, **about)

    assert kinds(decision) == [(f"{CASE}/outputs", "exceeds")]


def test_a_failure_of_a_sample_that_the_accepted_run_did_not_have_does_not_ship(
    tmp_path,
):
    before = record(output(99))
    after = record(output(99), output(10_000, sample="s-1"))
    about = {"verdicts": [verdict(f"{CASE}/outputs", "exceeds")], "why": "only a demo"}

    decision = decided(before, after, tmp_path, **about)

    assert decision.code == DO_NOT_SHIP
    assert kinds(decision) == [(f"{CASE}/outputs", "exceeds")]
    assert "the accepted run did not have s-1" in decision.reasons[0].words


def test_a_sample_that_is_new_leaves_the_others_compared(tmp_path):
    after = record(output(2), output(2, sample="s-1"))

    assert decided(record(output(2)), after, tmp_path).code == SHIP


MADE = {"unet/checkpoint": "c1", "unet/configuration": "f1", "unet/recipe": "r1"}


def retrained(floors, *, case=CASE, moved="checkpoint", hints=()):
    """A case before and after something in its network changed."""
    before = record(*chain(1, 1), output(2), case=case, inputs={"s-0": "one"})
    after = record(*chain(1, 1), output(floors), case=case, inputs={"s-0": "two"})
    parts = {name: d + "*" if moved in name else d for name, d in MADE.items()}
    asked = {"device": "cpu", "hints": [["winograd_memory_level", 0]]}
    return (
        replace(before, made_of=MADE, asked=asked),
        replace(after, made_of=parts, asked={**asked, "hints": list(hints)}),
    )


SAME, WRONG = record(output(2)), record(output(99))
ONE, TWO = (record(output(2), inputs={"s-0": name}) for name in ("one", "two"))
BEFORE, AFTER = retrained(2, moved="nothing")
LARGE = record(*chain(1, 12), output(12), peak_bytes=400 << 20)
PAGES = {
    "the same": (SAME, SAME, {}),
    "a known gap": (WRONG, WRONG, GAPS),
    "a stale file": (SAME, SAME, {"stale": ["t.toml:9 matches no probe."]}),
    "other inputs": (ONE, TWO, {}),
    "other weights, and a failure": (*retrained(99), {}),
    "another configuration": (*retrained(2, moved="configuration"), {}),
    "another recipe": (*retrained(2, moved="recipe"), {}),
    "other inputs of the network": (BEFORE, AFTER, {}),
    "other settings": (BEFORE, replace(AFTER, inputs=BEFORE.inputs), {}),
    "worse": (record(*chain(1, 1), output(1), peak_bytes=1), LARGE, {}),
}
CODES = dict.fromkeys(PAGES, DO_NOT_SHIP) | {
    "the same": SHIP,
    "a known gap": SHIP,
    "other inputs": CANNOT_SAY,
    "another configuration": CANNOT_SAY,
    "another recipe": CANNOT_SAY,
    "other inputs of the network": CANNOT_SAY,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_names_its_causes_in_these_words(tmp_path, name, snapshot):
    before, after, about = PAGES[name]
    decision = decided(before, after, tmp_path, **about)

    assert all(len(line) <= 100 for line in page(decision).splitlines())
    assert decision.code == CODES[name]
    assert page(decision) == snapshot


def test_the_markdown_has_these_words(tmp_path, snapshot):
    before, after, _ = PAGES["worse"]
    assert gate_markdown(decided(before, after, tmp_path)) == snapshot


def test_a_cause_that_cases_share_is_said_once(tmp_path):
    pairs = [retrained(2, case=case) for case in (CASE, "unet/mnn/int8")]
    befores, afters = zip(*pairs, strict=True)
    kept = accept(run(*befores), name="digits", who="A. Reviewer", why="", when=TODAY)
    verdicts = verdicts_of(tmp_path, *afters, text=TIERS, whats=("layers", "outputs"))
    found = diff(kept.report, run(*afters), exactly)
    names = {one.key: one.case for one in afters}

    text = page(decide(kept, found, verdicts, names=names))

    assert text.count("the weights of unet changed") == 1
    assert "4 results cannot be compared" in text
