"""A known gap excuses exactly the failures that it states, unless it is stale."""

from datetime import date

import pytest
from msgspec import structs

import harness.judge.known_gaps
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.judge.known_gaps import Gap, apply, find, load_gaps, unmatched

TODAY = date(2026, 11, 21)
GAP = Gap(
    case="unet/mnn/fused/*",
    outcome=Outcome.EXCEEDS,
    why="GELU is fused into its tanh form",
    issue="31",
    until=date(2026, 11, 21),
    source="known_gaps.toml:3",
)
ENTRY = """
[[gap]]
case = "unet/mnn/fused/outputs"
outcome = "exceeds"
why = "GELU is fused into its tanh form"
"""


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "known_gaps.toml"

    def load(text):
        path.write_text(text)
        return load_gaps(path)

    return load


def test_a_gap_is_read_with_all_it_says(load):
    issue = "https://github.com/alibaba/MNN/issues/1"
    more = f'issue = "{issue}"\nuntil = 2027-01-01\nwho = "A. Reviewer"\n'
    (gap,) = load(ENTRY + more)

    assert gap.case == "unet/mnn/fused/outputs"
    assert gap.outcome is Outcome.EXCEEDS
    assert gap.why == "GELU is fused into its tanh form"
    assert gap.issue == issue
    assert gap.until == date(2027, 1, 1)
    assert gap.who == "A. Reviewer"
    assert gap.source.endswith("known_gaps.toml:2")


def test_the_example_in_the_docs_is_a_file_of_gaps(load):
    lines = harness.judge.known_gaps.__doc__.splitlines()
    (gap,) = load(
        "\n".join(line for line in lines if line.startswith("    [") or "=" in line)
    )
    assert gap.until == date(2027, 1, 1)
    assert gap.sometimes


def test_what_fails_by_chance_may_pass_and_fails_in_no_other_way():
    gap = structs.replace(GAP, sometimes=True)
    ended = {
        outcome: apply([gap], "unet/mnn/fused/outputs", outcome, TODAY)
        for outcome in (Outcome.WITHIN, Outcome.EXCEEDS, Outcome.NONFINITE)
    }

    assert ended[Outcome.WITHIN].outcome is Outcome.GAP
    assert ended[Outcome.WITHIN].reason.endswith("; not in this file")
    assert ended[Outcome.EXCEEDS].outcome is Outcome.GAP
    assert ended[Outcome.NONFINITE].outcome is Outcome.STALE_GAP


def test_an_issue_may_be_a_number_and_the_optional_keys_may_be_absent(load):
    assert load(ENTRY + "issue = 31\n")[0].issue == "31"
    assert (load(ENTRY)[0].issue, load(ENTRY)[0].until) == ("", None)
    assert load("") == ()


MISTAKES = {
    "pass": (ENTRY.replace("exceeds", "within"), '4: unknown outcome "within"'),
    "a-runtime-that-is-not-there": (
        ENTRY.replace("exceeds", "unavailable"),
        '4: unknown outcome "unavailable"',
    ),
    "misspelt-table": (
        ENTRY.replace("[[gap]]", "[[gaps]]"),
        "2: unknown key 'gaps'; did you mean 'gap'?",
    ),
    "blank-reason": (
        ENTRY.replace("GELU is fused into its tanh form", " "),
        "5: 'why' is empty.",
    ),
    "twice": (ENTRY + ENTRY, "8: gap 'unet/mnn/fused/outputs' is already at "),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_names_its_line(load, text, message):
    with pytest.raises(SuiteError) as error:
        load(text)
    assert f"known_gaps.toml:{message}" in str(error.value)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_the_expected_failure_becomes_a_gap(outcome):
    expected = {
        Outcome.EXCEEDS: Outcome.GAP,
        Outcome.UNAVAILABLE: Outcome.UNAVAILABLE,
        Outcome.ABSENT: Outcome.ABSENT,
    }.get(outcome, Outcome.STALE_GAP)
    assert apply([GAP], "unet/mnn/fused/outputs", outcome, TODAY).outcome is expected


REASONS = {
    "as-it-says-on-its-last-day": (
        Outcome.EXCEEDS,
        TODAY,
        "known gap: GELU is fused into its tanh form (issue 31)",
    ),
    "fixed": (
        Outcome.WITHIN,
        TODAY,
        "gap says exceeds, and it passes; remove the gap (known_gaps.toml:3)",
    ),
    "another-way": (
        Outcome.NONFINITE,
        TODAY,
        "gap says exceeds, and it is nonfinite (known_gaps.toml:3)",
    ),
    "expired": (
        Outcome.EXCEEDS,
        date(2026, 11, 22),
        "gap expired 2026-11-21 (issue 31); it is exceeds today (known_gaps.toml:3)",
    ),
}


@pytest.mark.parametrize(("outcome", "today", "reason"), REASONS.values(), ids=REASONS)
def test_the_reason_says_what_the_gap_says_or_how_it_is_stale(outcome, today, reason):
    applied = apply([GAP], "unet/mnn/fused/outputs", outcome, today)
    assert applied.reason == reason
    assert applied.gap is GAP
    assert applied.outcome.passed is reason.startswith("known gap")


def test_an_id_without_a_gap_keeps_its_outcome():
    applied = apply([GAP], "unet/mnn/fp32/outputs", Outcome.EXCEEDS, TODAY)
    assert (applied.outcome, applied.reason, applied.gap) == (Outcome.EXCEEDS, "", None)


def test_the_first_gap_that_matches_speaks_and_a_shadowed_one_is_unmatched():
    first, second, third = (
        Gap(case=case, outcome=Outcome.CRASHED, why="x") for case in ("a/*", "a/b", "c")
    )
    assert find([first, second, third], "a/b") is first
    assert unmatched([first, second, third], ["a/b", "d"]) == (second, third)
    assert unmatched([first], ["a/b"]) == ()
