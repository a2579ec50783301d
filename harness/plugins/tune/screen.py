"""The screen of a tuning: the tried inputs, the needed bounds, and the changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from harness.core.text import Line, count, cut, wrapped
from harness.plugins.tune.proposal import Proposal
from harness.plugins.tune.record import Tuning
from harness.plugins.tune.toml_edit import Edit

_NAME = 38


def tuning_lines(tuning: Tuning, proposals: Sequence[Proposal]) -> Iterator[Line]:
    """Yield the tried inputs and the results, a line for each probe group."""
    for name in dict.fromkeys(case.component for case in tuning.cases.values()):
        cases = [one for one in tuning.cases.values() if one.component == name]
        tried = {one.sample.id: one for case in cases for one in case.tried}
        why = Counter(one.why for one in tried.values())
        words = ", ".join(f"{number:,} {reason}" for reason, number in why.items())
        seconds = sum(sum((case.took_s or {}).values()) for case in cases)
        text = (
            f"{name}: {count(len(cases), 'case')} on {count(len(tried), 'input')} "
            f"({words}) in {seconds:.0f} s"
        )
        yield Line(text=text)
        if gone := {
            one.sample.id for case in cases for one in case.tried if one.usage is None
        }:
            text = f"{len(gone)} left out: PyTorch's own outputs are not finite there"
            yield Line(text=f" {text}", tone="quiet")
    for case, reason in tuning.failed.items():
        yield from wrapped(f"✗ {case}: {reason}", indent=" ", tone="bad")
    yield Line(text="")
    shown = ""
    for part in proposals:
        case = "/".join(part.case)
        group = cut(part.pattern, 8) if part.pattern else part.group
        text = f" {case if case != shown else '':<{_NAME}} {group:<8} "
        shown = case
        yield Line(text=text + _outcome(part), tone="good" if part.changes else "")


def _outcome(part: Proposal) -> str:
    if part.remark:
        return f"as it is: {part.remark}"
    to = " ".join((part.tier, *(f"{k} {v:g}" for k, v in part.bounds.items())))
    return f"{part.figures} → {to if part.changes else 'as it is'}"


def beyond_lines(proposals: Iterable[Proposal]) -> Iterator[Line]:
    """Yield the bounds that healthy builds need and today's tolerances do not allow."""
    short = [part for part in proposals if part.beyond]
    if not short:
        return
    yield Line(text="")
    yield Line(text="Less than half of the headroom is left:", tone="bad")
    for part in short:
        bounds = ", ".join(
            f"{bound} {now:g} → {need:.3g}"
            for bound, (now, need) in part.beyond.items()
        )
        group = f"{part.group} of {part.pattern}" if part.pattern else part.group
        text = (
            f"{'/'.join(part.case)} {group}: {bounds}; measured {part.figures} on "
            f"{part.worst}"
        )
        yield from wrapped(text, indent="   ")


def edit_lines(
    edits: Sequence[Edit],
    *,
    written: bool,
    again: str,
    then: str = "parity run",
) -> Iterator[Line]:
    """Yield the changes as a diff, and the next step.

    It is `then` once they are written, and before that the command `again`, which
    writes.
    """
    yield Line(text="")
    changed = [edit for edit in edits if edit.diff]
    if not changed:
        yield Line(text="Nothing would change.")
        return
    tones = {"+": "good", "-": "bad", "@": "quiet"}
    for one in changed:
        for line in one.diff:
            yield Line(text=line, tone=tones.get(line[:1], ""))
    yield Line(text="")
    if written:
        yield Line(text=f"wrote {', '.join(str(one.path) for one in changed)}")
        yield Line(text=f"next  {then}")
    else:
        yield Line(text=f"next  {again}")
