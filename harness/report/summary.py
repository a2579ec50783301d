"""A run's summary: first divergences, cases near their limit, and next commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest

from harness.core.outcome import Outcome
from harness.core.plugins import Added, added, sentences
from harness.core.record import CaseRecord, Key, coverage_share, left_out
from harness.core.table import Column, ReportTable
from harness.core.text import (
    INDENT,
    WIDTH,
    Line,
    alike,
    count,
    cut,
    few,
    joined,
    wrapped,
)
from harness.judge.reference import has_pytorch
from harness.judge.unread import unread_message
from harness.recipes.stand_ins import SCHEDULER
from harness.report.divergence import Divergence, divergences
from harness.report.markdown import block, table_of, word
from harness.report.run_facts import BAD, GOOD, RunFacts
from harness.report.tables import cases_table

CLOSEST = 3
"""Number of cases near their limit that a summary names."""

DETAILED = 5
"""Number of failures that a summary explains; each further failure has one line."""

_PLACE = 40
"""Most columns of the place of a case that is near its limit."""


def summary(facts: RunFacts, *, report: str = "") -> Iterator[Line]:
    """Yield a run's summary, the clearest failure first; `report` is a path to name."""
    failures = divergences(facts)
    for at, failure in enumerate(failures):
        lines = list(_failure(failure))
        yield from lines if at < DETAILED else lines[:1]
        if failure.also:
            yield from wrapped(f"also {few(failure.also)}", tone="quiet")
    for complaint in facts.stale:
        yield from wrapped(f"✗ {complaint}", indent=" ", tone="bad")
    yield from _tally(facts)
    yield from _coverage(facts)
    for text in beside(facts, facts.compared, facts.names):
        yield from wrapped(text, indent=" ", tone="quiet")
    if ran := list(facts.ran()):
        yield from wrapped(f"ran {'; '.join(ran)}", indent=" ", tone="quiet")
    for text in (*node_notes(facts), *shard_notes(facts)):
        yield from wrapped(text, indent=" ", tone="quiet")
    yield from _ends(facts, failures[0] if failures else None, report)


def markdown(facts: RunFacts, lines: Sequence[Line]) -> str:
    """Return a run's summary, `lines`, in Markdown, and its tables."""
    parts = [f"## Parity {word(facts.run)}\n\n{block(lines)}\n"]
    if facts.requested:
        parts.append(table_of(cases_table(facts)))
    parts += sentences("tables", facts)
    return "\n".join(parts)


def beside(
    facts: RunFacts, records: Sequence[CaseRecord], names: Mapping[Key, str]
) -> Iterator[str]:
    """Yield what stands beside verdicts; similar cases share a sentence."""

    def padding(record: CaseRecord) -> Iterator[str]:
        checks = facts.checks[record.key]
        yield unread_message([row for check in checks for row in check.rows])

    def said(record: CaseRecord, one: Added) -> Iterator[str]:
        for check in facts.checks[record.key]:
            yield from one.sentences(record, check.what, check.rows)

    kinds: list[Callable[[CaseRecord], Iterator[str]]]
    kinds = [partial(said, one=one) for one in added("beside")]
    for tell in (*kinds, padding):
        told = (
            (names[record.key], "; ".join(filter(None, dict.fromkeys(tell(record)))))
            for record in records
        )
        for text, cases in alike(one for one in told if one[1]).items():
            yield f"{few(cases)}: {text}"
    yield from sentences("remarks", records, names)


def _ends(facts: RunFacts, failure: Divergence | None, report: str) -> Iterator[Line]:
    """Yield the next commands and the report's path."""
    next_steps = facts.next_steps
    if failure and failure.record.rows:
        record = failure.record
        explained = record.case if failure.can_be_explained else ""
        yield from next_steps.lines(failure.case, explained, record.suite)
    if report:
        yield Line(text=f" report      {report}", tone="quiet")
    if report and (step := _next_step(facts)):
        yield Line(text=f" next        {step}", tone="quiet")


def _next_step(facts: RunFacts) -> str:
    """Return the command that follows a run that agrees; empty if none is known."""
    # A shard is merged first; a run beside a baseline has its differences to read.
    if facts.exit_code or facts.since or "shard" in facts.about:
        return ""
    if any(record.tried for record in facts.records):  # its command says what follows
        return ""
    whole = facts.about.get("whole")
    next_steps, suites = facts.next_steps, {record.suite for record in facts.records}
    if whole:
        return facts.follows
    # Shards do not say with which options they ran.
    if whole is None or len(suites) != 1 or "shards" in facts.about:
        return ""
    return f"{next_steps.rest(*suites)}   runs every case"


def node_notes(facts: RunFacts) -> Iterator[str]:
    """Yield how many cases each node of a cluster ran; shards have their own notes."""
    nodes = Counter(record.node for record in facts.records if record.node)
    if nodes and not facts.about.get("shards"):
        ran = [f"{node} ({count(n, 'case')})" for node, n in sorted(nodes.items())]
        yield f"ran on {few(ran)}"


def shard_notes(facts: RunFacts) -> Iterator[str]:
    """Yield which machine ran which shard, or of which run this is a shard."""
    for shard in facts.about.get("shards") or ():
        cases = count(len(shard["cases"]), "case")
        yield f"shard {shard['number']}, run {shard['run']}: {cases} on {shard['cpu']}"
    if shard := facts.about.get("shard"):
        yield (
            f"this is shard {shard['number']} of {shard['of']}; parity merge makes one "
            "run of all of them"
        )


def _failure(failure: Divergence) -> Iterator[Line]:
    """Yield a failure's line, then its facts."""
    name = failure.case
    if failure.also:
        name += f" and {len(failure.also):,} more"
    place = failure.outcome
    if failure.place:
        op = f"  ({failure.op})" if failure.op else ""
        at = f"first diverges {failure.lead} " if op else "first diverges at output "
        room = WIDTH - len(f"{INDENT}{at}{op}")
        place = f"{at}{cut(failure.place, room)}{op}"
    if len(f" ✗ {name}   {place}") <= WIDTH:
        yield Line(text=f" ✗ {name}   {place}", tone="bad")
    else:
        yield Line(text=f" ✗ {name}", tone="bad")
        yield Line(text=f"{INDENT}{place}", tone="bad")
    for group in failure.facts:
        yield from joined(group)
    for line in failure.log:
        yield Line(text=f"{INDENT}│ {line}"[:WIDTH], tone="quiet")
    if failure.source:
        yield Line(text=f"{INDENT}{failure.source}", tone="quiet")


def agreement(facts: RunFacts) -> Iterator[str]:
    """Yield how many cases agree, how many of them by a known gap, and the skips."""
    total = len(facts.compared)
    if not total:
        yield "Nothing was compared."
    else:
        good = sum(facts.state(record) == GOOD for record in facts.compared)
        agree = "agrees" if total == 1 else "agree"
        by_pytorch = any(map(has_pytorch, facts.compared))
        whom = "PyTorch" if by_pytorch else "the ONNX file that is its reference"
        found = f"{good:,} of {count(total, 'case')} {agree} with {whom}"
        yield f"{found}{stand_in_words(facts.compared)}."
    if known := [facts.names[r.key] for r in facts.requested if facts.by_gap(r)]:
        yield f"{len(known):,} of them only by a known gap: {few(known)}."
    for reason, cases in facts.skips().items():
        yield f"{count(cases, 'case')} skipped: {reason.rstrip('.')}."


def _tally(facts: RunFacts) -> Iterator[Line]:
    states = {facts.state(record) for record in facts.requested} or {BAD}
    tones = [BAD if BAD in states or GOOD not in states else GOOD]
    for text, tone in zip_longest(agreement(facts), tones, fillvalue="quiet"):
        yield from wrapped(text, indent=" ", tone=tone)
    near = sorted(
        (
            max(checks, key=lambda check: check.usage)
            for checks in (facts.checks[record.key] for record in facts.compared)
            if all(check.outcome is Outcome.WITHIN for check in checks)
        ),
        key=lambda verdict: -verdict.usage,
    )[:CLOSEST]
    found = [(facts.names[one.key], one.worst) for one in near if one.worst]
    if found:
        yield Line(text=" Closest to their limit:")
        columns = (
            Column("", [name for name, _ in found]),
            Column("", [cut(worst.row.place, _PLACE) for _, worst in found]),
            Column("", [worst.verdict.reason for _, worst in found]),
        )
        yield from ReportTable(columns=columns).lines(indent="   ")


def _coverage(facts: RunFacts) -> Iterator[Line]:
    lowest: dict[str, CaseRecord] = {}
    for record in facts.compared:
        if record.coverage is None:
            continue
        kept = lowest.get(record.backend)
        if kept is None or coverage_share(record) < coverage_share(kept):
            lowest[record.backend] = record
    shares = []
    for backend, record in lowest.items():
        left = ", ".join(left_out(record))
        detail = f" ({left} in {facts.names[record.key]})" if left else ""
        shares.append(f"{coverage_share(record):.1%} in {backend}{detail}")
    if shares:
        shares[0] = f"coverage at least {shares[0]}"
    yield from joined(shares, indent=" ", between="; ", tone="quiet")


def stand_in_words(records: Collection[CaseRecord]) -> str:
    """Return, in brackets, the stand-ins for real inputs, and sizes not tried.

    The text is empty if there was no stand-in and every size was tried.
    """
    found = Counter(kind for record in records for kind in record.stand_ins)
    parts = {
        kind: "" if cases == len(records) else f" in {count(cases, 'case')}"
        for kind, cases in found.items()
    }
    drawn = [f"{kind}{part}" for kind, part in parts.items() if kind != SCHEDULER]
    words = []
    if drawn:
        *first, last = drawn
        listed = f"{', '.join(first)} and {last}" if first else last
        words.append(f"{listed} drawn at random")
    if SCHEDULER in parts:
        ddim = "Stable Diffusion's DDIM, as no scheduler is given"
        words.append(f"{ddim}{parts[SCHEDULER]}")
    if large := dict.fromkeys(size for record in records for size in record.too_large):
        words.append(f"not tried for lack of memory: {', '.join(large)}")
    if refused := dict.fromkeys(one for record in records for one in record.refused):
        words.append(f"not run: {few(list(refused))}")
    return f" ({'; '.join(words)})" if words else ""
