"""Two runs held against each other, in lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.core.text import Line, count, few, wrapped
from harness.report.runs.diff import MEMORY, Diff, Finding
from harness.report.runs.thresholds import Change

SHOWN = 12
"""How many findings of one kind a screen lists; of the rest it gives the number."""

_TONES = {Change.WORSE: "bad", Change.GONE: "bad", Change.BETTER: "good"}
LOUDEST_FIRST = (
    Change.WORSE,
    Change.GONE,
    Change.INCOMPARABLE,
    Change.BETTER,
    Change.NEW,
)


def diff_lines(found: Diff) -> Iterator[Line]:
    """Yield what changed, what was worst first, then what it was measured on."""
    yield Line(text=f"before {found.before} · after {found.after}")
    for change in LOUDEST_FIRST:
        findings = [one for one in found.of(change) if not elsewhere(one)]
        yield from listed(findings, tone=_TONES.get(change, ""))
    yield from totals(found)
    yield from notes(found)


def elsewhere(finding: Finding) -> bool:
    """Whether a finding says no more than that the machine is another one."""
    return finding.of_machine and finding.change is Change.INCOMPARABLE


def listed(findings: Sequence[Finding], *, tone: str = "") -> Iterator[Line]:
    """Yield a line and its reason for each of the first findings, like together."""
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


def alike(told: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return words to the names that they are said of.

    >>> alike([("a/layers", "gone"), ("a/outputs", "gone"), ("b/size", "+9%")])
    {'gone': ['a/layers', 'a/outputs'], '+9%': ['b/size']}
    """
    together: dict[str, list[str]] = {}
    for name, words in dict.fromkeys(told):
        together.setdefault(words, []).append(name)
    return together


def and_more(names: Sequence[str]) -> str:
    """Return how many names there are beside the first."""
    return f" and {len(names) - 1:,} more" if names[1:] else ""


def also(names: Sequence[str], indent: str) -> Iterator[Line]:
    """Yield the names beside the first, or the first of them."""
    if names[1:]:
        yield from wrapped(f"also {few(names[1:])}", indent=indent, tone="quiet")


def totals(found: Diff) -> Iterator[Line]:
    """Yield how many checks went which way, and how many of their rows."""
    checks = Counter(
        finding.change for finding in found.findings if not elsewhere(finding)
    )
    rows: Counter[Change] = Counter()
    for finding in found.findings:
        rows.update(finding.rows or {})
    for noun, numbers in (("measurement", checks), ("row", rows)):
        told = _numbers(numbers)
        total = count(sum(numbers.values()), noun)
        yield Line(text=f" {total}: {told}" if told else f" no {noun} in common")


def _numbers(numbers: Mapping[Change, int]) -> str:
    return ", ".join(
        f"{numbers[change]:,} {change}" for change in Change if numbers.get(change)
    )


def notes(found: Diff) -> Iterator[Line]:
    """Yield what else is different: versions, the suite's files, the machine."""
    facts: list[str] = []
    if found.versions:
        tools = ", ".join(f"{t} {a} → {b}" for t, (a, b) in found.versions.items())
        facts.append(f"versions that differ: {tools}")
    if found.files:
        facts.append(f"files that differ: {', '.join(found.files)}")
    if found.machines:
        facts.append(
            f"{found.machines}; errors are compared in noise floors, time and memory "
            "are not"
        )
    facts += _no_times(found)
    for fact in facts:
        yield from wrapped(fact, indent=" ", tone="quiet")


def _no_times(found: Diff) -> Iterator[str]:
    """Say why there is no verdict on time, where there is none."""
    times = [one for one in found.findings if one.of_machine and one.what != MEMORY]
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
