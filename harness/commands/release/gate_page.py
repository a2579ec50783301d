"""The gate's page: ship or don't, each reason, and who accepted what until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.commands.release.gate import CANNOT_SAY, SHIP, Decision, Excused, Reason
from harness.core.text import INDENT, Line, count, wrapped
from harness.report.run_diff import SHOWN, also, and_more, listed, notes, totals
from harness.report.runs.thresholds import Change

_WORDS = ("SHIP", "DO NOT SHIP", "CANNOT SAY")


def gate_lines(decision: Decision, *, most: int = SHOWN) -> Iterator[Line]:
    """Yield the page; no more than `most` reasons are spelled out."""
    code = decision.code
    tone = "good" if code == SHIP else "bad"
    yield Line(text=f"{_WORDS[code]}   {decision.diff.after}", tone=tone)
    yield Line(text=f" held against {_against(decision)}")
    if code == CANNOT_SAY:
        text = "no check of the run could be held against the baseline's"
        yield from wrapped(text, indent=" ")
    yield from _reasons(decision.reasons, most)
    yield from _excused(decision.excused)
    yield from listed(decision.diff.of(Change.NEW), tone="quiet")
    better = decision.diff.of(Change.BETTER)
    yield from listed(better[:most], tone="good")
    yield from totals(decision.diff)
    yield from notes(decision.diff)


def _against(decision: Decision) -> str:
    accepted, run = decision.baseline.accepted, decision.diff.before
    return (
        f"{decision.baseline.name}, run {run}, accepted {accepted.when} by "
        f"{accepted.who}"
    )


def _reasons(reasons: Sequence[Reason], most: int) -> Iterator[Line]:
    together: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        together.setdefault((reason.kind, reason.words), []).append(reason.name)
    for number, ((kind, words), names) in enumerate(together.items(), 1):
        if number > most:
            more = count(len(together) - most, "more reason")
            yield Line(text=f"     and {more}, in gate.md", tone="bad")
            return
        text = f" {number:>2}  {names[0]}{and_more(names)}   {kind}"
        yield Line(text=text, tone="bad")
        yield from wrapped(words)
        yield from also(names, INDENT)


def _excused(excused: Sequence[Excused]) -> Iterator[Line]:
    if excused:
        yield Line(text=f" {count(len(excused), 'accepted failure')}")
    for one in excused:
        checks = count(one.count, "check")
        yield Line(text=f"   {one.name}   {one.outcome}, {checks}; {_by(one)}")
        yield from wrapped(one.why, tone="quiet")


def _by(one: Excused) -> str:
    who = f"accepted by {one.who}" if one.who else "nobody says who accepted it"
    return f"{who}, {f'until {one.until}' if one.until else 'with no last day'}"


def gate_markdown(decision: Decision) -> str:
    """Return the page for a pull request, every reason in it."""
    head = f"## {_WORDS[decision.code]}: {decision.diff.after}"
    parts = [f"{head}\n\nHeld against {_against(decision)}.\n"]
    if decision.reasons:
        parts.append(
            _table(
                ("", "what", "reason", "detail"),
                (
                    (str(number), one.name, f"**{one.kind}**", one.words)
                    for number, one in enumerate(decision.reasons, 1)
                ),
            )
        )
    if decision.excused:
        parts.append(
            _table(
                ("accepted failure", "checks", "who", "until", "why"),
                (
                    (
                        f"{one.name} ({one.outcome})",
                        str(one.count),
                        one.who or "nobody says",
                        str(one.until or "no last day"),
                        one.why,
                    )
                    for one in decision.excused
                ),
            )
        )
    facts = (*totals(decision.diff), *notes(decision.diff))
    body = "\n".join(line.text.strip() for line in facts)
    parts.append(f"```text\n{body}\n```\n")
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [_row(head), "|".join(["", *("---" for _ in head), ""])]
    lines += map(_row, rows)
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    # A pattern's bar or a path's underscore must not become a cell or a slant.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
