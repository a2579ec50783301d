"""An explanation as a screen: what it is, where it comes in, and what mends it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.commands.explain.explain import MOVED, Explanation, Trial, moved
from harness.commands.explain.knobs import toml_of
from harness.core.text import (
    Line,
    count,
    few,
    in_floors,
    number_of_floors,
    wrapped,
)
from harness.report.summary import place_of

_COLUMN = 11
_HEAD = " " * _COLUMN
_SAME = 0.005
"""Below half a percent a change is none."""


def explanation_lines(found: Explanation) -> Iterator[Line]:
    """Yield an explanation, the next step last."""
    row = found.first.row
    others = [
        place_of(judged.row)
        for judged in found.verdict.origins
        if judged.row.probe != row.probe
    ]
    place = place_of(row)
    text = f"{found.case.id} parts from PyTorch at {place}"
    if others:
        text += f", and by itself at {count(len(others), 'other place')}: {few(others)}"
    yield from wrapped(f"{text}.", indent="", tone="bad")
    yield Line(text="")
    yield from _entry("what", _what(found))
    yield from _entry("leg", found.leg)
    if found.chance:
        yield from _entry("chance", found.chance)
    mending = found.mending
    if mending:
        yield from _mended(found, mending[0])
        for trial in mending[1:]:
            yield from _entry("or", _effect(found, trial))
    else:
        yield from _entry("mended", "by no knob that was tried")
    yield from _tried(found)
    if mending and mending[0].knob is not None:
        yield Line(text="")
        lead = "  parity.toml   "
        for line in toml_of(found.case, mending[0].knob.turn(found.case)):
            yield Line(text=f"{lead}{line}")
            lead = " " * len(lead)


def _entry(name: str, text: str) -> Iterator[Line]:
    for at, line in enumerate(wrapped(text, indent=_HEAD)):
        shown = line.text[_COLUMN:]
        yield Line(text=f"  {name if at == 0 else '':<{_COLUMN - 2}}{shown}")


def _what(found: Explanation) -> str:
    """Say what it looks like, and what the knob that mends it undoes."""
    mending = found.mending
    cause = mending[0].knob.cause if mending and mending[0].knob else ""
    parts = [part for part in (found.signature, cause) if part]
    if found.own is not None:
        parts.append(f"{in_floors(found.own)} on PyTorch's own inputs")
    elif found.verdict.isolated:
        parts.append("no operator introduces it alone: it grows on the way")
    return "; ".join(parts) or "like nothing that is known"


def _effect(found: Explanation, trial: Trial) -> str:
    name = trial.knob.name if trial.knob else ""
    beside = found.before if trial.whole or found.excerpt is None else found.excerpt
    text = f"{name}   {_number(beside.floors)} → {_number(trial.floors)} floors"
    if trial.whole:
        was, now = beside.output_floors, trial.output_floors
        return f"{text}, output {_number(was)} → {_number(now)}"
    return f"{text} in the excerpt"


def _mended(found: Explanation, trial: Trial) -> Iterator[Line]:
    yield from _entry("mended", _effect(found, trial))
    before = found.before
    parts = [
        f"{name} the same" if abs(change) < _SAME else f"{name} {change:+.0%}"
        for name, change in (
            ("time", found.slower - 1),
            ("memory", trial.peak_bytes / before.peak_bytes - 1),
            ("size", trial.size_bytes / before.size_bytes - 1),
        )
    ]
    rest = "" if trial.passed else "; other values are still out of tolerance"
    yield from _entry("", f"{', '.join(parts)}{rest}")


def _tried(found: Explanation) -> Iterator[Line]:
    text = f"{count(len(found.trials), 'knob')} in {found.took_s:.0f} s"
    still = len(list(_unmoved(found)))
    if still:
        text += f"; {still} of them moved it by no more than {MOVED:.0%}"
    yield from _entry("tried", text)
    if found.excerpt is not None:
        shows = "shows" if not found.excerpt.mended else "does not show"
        yield from _entry("", f"the operators around it alone {shows} it")
    if found.spared:
        names = few([knob.name for knob in found.spared])
        yield from _entry("", f"not tried, since it is mended: {names}")
    for trial in found.trials:
        if trial.knob is None or (trial.mended and trial.whole):
            continue
        beside = found.before if trial.whole else found.excerpt
        if trial.failure:
            yield from _entry("", f"{trial.knob.name} could not be: {trial.failure}")
        elif beside and moved(trial.floors, beside.floors):
            yield from _entry("", _effect(found, trial))


def _unmoved(explanation: Explanation) -> Iterator[Trial]:
    """Yield trials that were measured and changed nothing worth a word."""
    for trial in explanation.trials:
        beside = explanation.before if trial.whole else explanation.excerpt
        if beside and not trial.failure and not moved(trial.floors, beside.floors):
            yield trial


def _number(value: float) -> str:
    return "-" if math.isnan(value) else number_of_floors(value)
