"""The top of the page: the verdict, where it first parts, every case in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.core.pipeline import IMAGE, LATENTS
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, coverage_share
from harness.core.text import count, few, operator
from harness.judge.case import CaseVerdict
from harness.report.html.found import BAD, GOOD, QUIET, Found, Section
from harness.report.html.table import Column, Table, Words, short
from harness.report.stand_ins import stand_in_words
from harness.report.summary import (
    alike,
    error_facts,
    input_facts,
    origin_facts,
    shown_check,
    where_facts,
)

MOST_FAILURES = 5
"""How many failures are told in full; the table has them all."""

_VERDICTS = {
    0: (GOOD, "Parity"),
    1: (BAD, "No parity"),
    2: (BAD, "Could not tell"),
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The verdict.

    Attributes:
        state: Whether it agrees.
        words: The verdict in two words.
        sentence: What that means here.
        complaints: What is wrong with the files that describe the run.

    """

    state: str
    words: str
    sentence: str
    complaints: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Where a case first parts, or why it could not be told.

    Attributes:
        case: Its name.
        what: The place, or how the case ended.
        op: Operator there.
        source: The model's line.
        facts: Sentences, the most telling first.
        also: Other cases that failed with the same words.

    """

    case: str
    what: str
    op: str = ""
    source: str = ""
    facts: Sequence[str] = ()
    also: str = ""


@dataclass(frozen=True, kw_only=True)
class Cases(Section):
    """Every case, and how its checks ended."""

    template: ClassVar[str] = "table.html"

    table: Table


def headline(found: Found) -> Headline:
    """Return the verdict of the run."""
    states = [found.state(record) for record in found.asked]
    agree, skips = states.count(GOOD), states.count(QUIET)
    told = len(states) - skips
    state, words = _VERDICTS[found.exit_code]
    if found.since and found.since.blocks and BAD not in states and told:
        words = "Worse than the baseline"
    sentence = f"{agree:,} of {count(told, 'case')} agree with PyTorch"
    if not told:
        sentence = "Nothing was compared"
    elif agree == told:
        sentence = "The one case agrees" if told == 1 else f"All {told:,} cases agree"
        sentence += " with PyTorch"
    sentence += stand_in_words(found.asked)
    gaps = sum(map(found.by_gap, found.asked))
    if gaps:
        sentence += f", {count(gaps, 'case')} only by a known gap"
    if skips:
        reasons = dict.fromkeys(
            check.reason
            for record in found.asked
            for check in found.checks[record.key]
            if found.state(record) == QUIET
        )
        sentence += f"; {count(skips, 'case')} skipped: {few(list(reasons), 2)}"
    return Headline(
        state=state, words=words, sentence=f"{sentence}.", complaints=found.stale
    )


def divergences(found: Found) -> list[Divergence]:
    """Return failures, the clearest first, those with the same words once."""
    bad = (
        (record, found.checks[record.key])
        for record in found.asked
        if found.state(record) == BAD
    )
    told = []
    for same in alike(bad, found.names)[:MOST_FAILURES]:
        others = [found.names[record.key] for record, _ in same[1:]]
        told.append(_divergence(found, *same[0], also=few(others)))
    return told


def _divergence(
    found: Found, record: CaseRecord, checks: Sequence[CaseVerdict], *, also: str
) -> Divergence:
    case = found.names[record.key]
    if record.failure is not None:
        failure = record.failure
        return Divergence(
            case=case, what=failure.outcome, facts=(failure.message,), also=also
        )
    rest = [
        f"{check.what}: {check.outcome}, {check.reason}"
        for check in checks
        if not check.outcome.passed and check.first is None
    ]
    shown = shown_check(checks)
    if shown is None or shown.first is None:
        what = ", ".join(dict.fromkeys(check.outcome.value for check in checks))
        return Divergence(case=case, what=what, facts=tuple(rest), also=also)
    first = shown.first
    facts = (
        " · ".join(filter(None, error_facts(shown, first, checks))),
        " · ".join(input_facts(first, shown.inputs)),
        *origin_facts(shown, first),
        shown.looks,
        " · ".join(filter(None, where_facts(first))),
        *(check.picture for check in checks if check.picture),
        *rest,
    )
    return Divergence(
        case=case,
        what=first.row.module or first.row.probe,
        op=operator(first.row.op),
        source=first.row.source,
        facts=tuple(filter(None, facts)),
        also=also,
    )


def cases(found: Found) -> Iterator[Cases]:
    """Yield the section that lists every case."""
    if not found.asked:
        return
    subjects, backends, variants = Words(), Words(), Words()
    outcomes, places = Words(), Words()
    rows = []
    for record in found.asked:
        checks = {check.what: check for check in found.checks[record.key]}
        early = checks.get(LAYERS) or checks.get(LATENTS)
        late = checks.get(OUTPUTS) or checks.get(IMAGE)
        name = found.names[record.key]
        subject = name.removesuffix(f"/{record.backend}/{record.variant}")
        loudest = max(checks.values(), key=lambda check: check.usage)
        rows.append(
            [
                outcomes.at(_worst_outcome(list(checks.values()))),
                subjects.at(subject),
                backends.at(record.backend),
                variants.at(record.variant),
                outcomes.at(early.outcome.value if early else ""),
                outcomes.at(late.outcome.value if late else ""),
                short(loudest.usage) if loudest.worst else None,
                places.at(_place(loudest)),
                _least_sqnr(late),
                short(coverage_share(record)) if record.coverage else None,
            ]
        )
    yield Cases(
        id="cases",
        title="Cases",
        gist=count(len(rows), "case"),
        open=True,
        table=Table(
            id="cases-table",
            caption="Every case and how its checks ended",
            unit="case",
            columns=(
                Column(title="", kind="mark", words=outcomes.all, hint="agrees?"),
                Column(title="component", words=subjects.all),
                Column(title="runtime", words=backends.all),
                Column(title="variant", words=variants.all),
                Column(
                    title="on the way",
                    kind="outcome",
                    words=outcomes.all,
                    hint="values in between: layers, latents of every step",
                    minor=True,
                ),
                Column(
                    title="at the end",
                    kind="outcome",
                    words=outcomes.all,
                    hint="outputs as deployed, pictures",
                    minor=True,
                ),
                Column(
                    title="of limit",
                    kind="percent",
                    hint="how much of its bound the worst value uses",
                ),
                Column(title="worst at", kind="place", words=places.all, minor=True),
                Column(
                    title="SQNR dB",
                    kind="number",
                    hint="signal to error of the worst output, decibels",
                    minor=True,
                ),
                Column(
                    title="coverage",
                    kind="percent",
                    hint="computing operators that were compared",
                    minor=True,
                ),
            ),
            rows=rows,
            sort=6,
        ),
    )


def _worst_outcome(checks: Sequence[CaseVerdict]) -> str:
    bad = [check for check in checks if not check.outcome.passed]
    return (bad or checks)[0].outcome.value


def _place(check: CaseVerdict) -> tuple[str, str, str, str]:
    if check.worst is None:
        return ("", "", "", "")
    row = check.worst.row
    shape = "×".join(map(str, row.comparison.expected_shape))
    return (row.module or row.probe, operator(row.op), shape, row.source)


def _least_sqnr(check: CaseVerdict | None) -> float | str | None:
    values = [judged.row.comparison.sqnr_db for judged in (check.rows if check else ())]
    return short(min(values)) if values else None
