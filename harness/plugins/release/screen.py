"""Text lines about the comparison of two runs, and about the course over many runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from harness.core.text import INDENT, Line, alike, count, few, wrapped
from harness.plugins.release.diff import LOUDEST_FIRST, MEMORY, Diff, RunChange
from harness.plugins.release.thresholds import Change

if TYPE_CHECKING:
    from harness.plugins.release.course import Step

SHOWN = 12
"""How many findings of one kind a screen lists; the rest are counted."""

_TONES = {Change.WORSE: "bad", Change.GONE: "bad", Change.BETTER: "good"}


def diff_lines(found: Diff) -> Iterator[Line]:
    """Yield the changes, the worst first, then the conditions of the comparison."""
    yield Line(text=f"before {found.before} · after {found.after}")
    yield from _by_change(found.changes)
    yield from totals(found)
    yield from notes(found)


def course_lines(steps: Sequence[Step]) -> Iterator[Line]:
    """Yield a line for each run with its changes below, then a line for each case."""
    yield Line(text=f"{count(len(steps), 'run')}, oldest first")
    for step in steps:
        changes = {finding.change for finding in step.moved}
        tone = next((_TONES[one] for one in _TONES if one in changes), "")
        yield Line(text=f" {'◆' if step.moved else ' '} {step.run}", tone=tone)
        yield from _by_change(step.moved)
        if step.moved:
            since = ", ".join(step.since) or "nothing that a report tells"
            yield from wrapped(f"changed there: {since}", indent=INDENT)
        for why, names in alike(step.doubts).items():
            text = f"no verdict on {names[0]}{and_more(names)}: {why}"
            yield from wrapped(text, indent=INDENT, tone="quiet")
    moved = {finding.case for step in steps for finding in step.moved}
    cases = sorted({case for step in steps for case in step.errors})
    for case in cases:
        if case in moved:
            errors = [step.errors.get(case, "no such case") for step in steps]
            yield from wrapped(f"{case}   {_course(errors)}", indent=" ")
    if still := [case for case in cases if case not in moved]:
        text = f"nothing moved beyond noise in {count(len(still), 'case')}"
        yield from wrapped(f"{text}: {few(still)}", indent=" ", tone="good")


def _course(errors: Iterable[str]) -> str:
    """Return the errors of a case in order; equal errors in sequence are joined.

    >>> _course(["2 floors", "2 floors", "400 floors"])
    '2 floors (2 runs) → 400 floors'
    """
    told = []
    for error, run in itertools.groupby(errors):
        number = len(list(run))
        told.append(f"{error} ({number} runs)" if number > 1 else error)
    return " → ".join(told)


def _by_change(findings: Sequence[RunChange]) -> Iterator[Line]:
    for change in LOUDEST_FIRST:
        alike = [finding for finding in findings if finding.change is change]
        yield from listed(alike, tone=_TONES.get(change, ""))


def listed(findings: Sequence[RunChange], *, tone: str = "") -> Iterator[Line]:
    """Yield a line and its reason for the first findings; equal reasons are joined."""
    together = alike((finding.name, finding.words) for finding in findings)
    for words, names in list(together.items())[:SHOWN]:
        text = f" {findings[0].change.upper():<12} {names[0]}{and_more(names)}"
        yield Line(text=text, tone=tone)
        yield from wrapped(words, indent=" " * 14)
        yield from also(names, indent=" " * 14)
    left = [name for names in list(together.values())[SHOWN:] for name in names]
    if left:
        text = f"and {len(left):,} more {findings[0].change}: {few(left)}"
        yield from wrapped(text, indent=" " * 14, tone="quiet")


def and_more(names: Sequence[str]) -> str:
    """Return the number of names beside the first as a phrase."""
    return f" and {len(names) - 1:,} more" if names[1:] else ""


def also(names: Sequence[str], indent: str) -> Iterator[Line]:
    """Yield the names beside the first, or the first of them."""
    if names[1:]:
        yield from wrapped(f"also {few(names[1:])}", indent=indent, tone="quiet")


def totals(found: Diff) -> Iterator[Line]:
    """Yield the number of checks and of their rows with each kind of change."""
    checks = Counter(one.change for one in found.findings if not one.elsewhere)
    rows: Counter[Change] = Counter()
    for finding in found.findings:
        rows.update(finding.rows or {})
    for noun, numbers in (("measurement", checks), ("row", rows)):
        told = ", ".join(f"{numbers[one]:,} {one}" for one in Change if numbers[one])
        total = count(sum(numbers.values()), noun)
        yield Line(text=f" {total}: {told}" if told else f" no {noun} in common")


def notes(found: Diff) -> Iterator[Line]:
    """Yield the other differences: versions, the suite's files, the machine."""
    facts: list[str] = []
    if found.versions:
        tools = ", ".join(f"{t} {a} → {b}" for t, (a, b) in found.versions.items())
        facts.append(f"versions that differ: {tools}")
    if found.files:
        facts.append(f"files that differ: {', '.join(found.files)}")
    if found.machines:
        facts.append(
            f"{found.machines}; errors are compared in noise floors, time and memory "
            "of two machines are not"
        )
    facts += _no_times(found)
    for fact in facts:
        yield from wrapped(fact, indent=" ", tone="quiet")


def _no_times(found: Diff) -> Iterator[str]:
    """Yield the reasons why there is no verdict on a time."""
    times = [
        finding
        for finding in found.findings
        if finding.of_machine and finding.what != MEMORY
    ]
    if not times:
        yield "no verdict on time: nothing was timed in both runs"
    elif not found.machines:
        untold = (Change.INCOMPARABLE, Change.GONE, Change.NEW)
        unsure = (
            (f"{one.case}/{one.what}", one.words)
            for one in times
            if one.change in untold
        )
        for words, names in alike(unsure).items():
            yield f"no verdict on {names[0]}{and_more(names)}: {words}"
