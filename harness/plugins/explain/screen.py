"""The screen of an explanation: the error, the stage that causes it, and the fix."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.core.text import (
    Line,
    count,
    few,
    wrapped,
)
from harness.judge.reference import has_pytorch, of_reference
from harness.plugins.explain.excerpts import error_words
from harness.plugins.explain.explain import MOVED, Explanation, Trial, moved
from harness.plugins.explain.setting_changes import listed_as, toml_of
from harness.report.divergence import local_error, other_origins, place_of
from harness.report.explained import Explained, measured_by

_COLUMN = 14
_SAME = 0.005
"""A smaller relative change counts as no change."""


def explanation_lines(found: Explanation) -> Iterator[Line]:
    """Yield the lines of an explanation, the next step last."""
    yield from wrapped(_where(found), indent="", tone="bad")
    yield Line(text="")
    for name, text in _facts(found):
        yield Line(text=text, lead=f"  {name:<{_COLUMN - 2}}", breaks=" ")
    if toml := _toml(found):
        yield Line(text="")
        lead = "  parity.toml   "
        for entry in toml:
            yield Line(text=f"{lead}{entry}")
            lead = " " * len(lead)


def explained(found: Explanation, suite: str, command: str) -> Explained:
    """Return an explanation as the page of a run shows it.

    `suite` is the absolute path of its file, and `command` found the explanation.
    """
    return Explained(
        suite=suite,
        case=found.case.id,
        measured=measured_by(found.record),
        first=found.first.row.probe,
        command=command,
        facts=tuple(_facts(found)),
        toml="\n".join(_toml(found)),
    )


def _where(found: Explanation) -> str:
    place = place_of(found.first.row)
    text = f"{found.case.id} first diverges from PyTorch {found.verdict.lead} {place}"
    text = text if has_pytorch(found.record) else of_reference(text)
    if others := other_origins(found.verdict):
        places = count(len(others), "other place")
        text += f", and has a local error at {places}: {few(others)}"
    return f"{text}."


def _facts(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each fact; one without a name continues it."""
    yield "what", _what(found)
    if not found.fails:
        yield from _not_again(found)
        return
    yield "stage", found.stage
    if found.conversion:
        yield "conversion", found.conversion
    for at, trial in enumerate(found.fixing):
        yield "or by" if at else "fixed by", _effect(found, trial)
        if not at:
            yield "", _cost(found.before, trial)
        # Nobody ships this machine in the place of a phone.
        moves = trial.change is None or trial.change.leaves_target
        if (
            trial.change
            and not moves
            and (other := listed_as(found.case, trial.change))
        ):
            yield "", f"ship {other} in its place"
    if not found.fixing:
        yield "fixed by", "no setting that was tried"
    yield from _tried(found)


def _not_again(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield why nothing is proposed: it did not fail when it was measured again."""
    before, sample = found.before, found.first.row.sample
    if before.failure:
        how = f"it could not be run: {before.failure}"
    else:
        error = f"{error_words(before.floors, found.case)} at that value"
        how = f"it did not fail, with {error} on {sample}; so it fails by chance"
    yield "again", f"measured again as it is, {how}"
    yield "fixed by", "nothing is proposed, for no fix of it can be shown"


def _toml(found: Explanation) -> list[str]:
    """Return the lines of parity.toml that fix the case; none where nothing does."""
    change = found.fixing[0].change if found.fixing else None
    return list(toml_of(found.case, change)) if change else []


def _what(found: Explanation) -> str:
    """Return the error pattern, the cause that a fix removes, and the local error."""
    change = found.fixing[0].change if found.fixing else None
    parts = [found.verdict.looks, change.cause if change else ""]
    if found.local_floors is not None and not found.verdict.between:
        parts.append(f"local error {error_words(found.local_floors, found.case)}")
    else:
        parts.append(local_error(found.verdict, found.first))
    return "; ".join(filter(None, parts)) or "no known error pattern"


def _effect(found: Explanation, trial: Trial) -> str:
    name = trial.change.name if trial.change else ""
    beside = found.before if trial.whole or found.excerpt is None else found.excerpt
    if math.isnan(trial.floors):
        return f"{name}   the value is not compared then"
    text = f"{name}   {error_words(trial.floors, found.case, beside.floors)}"
    if trial.whole:
        output = error_words(trial.output_floors, found.case, beside.output_floors)
        return f"{text}, output {output.removesuffix(' floors')}"
    return f"{text} in the excerpt"


def _cost(before: Trial, trial: Trial) -> str:
    parts = [
        f"{name} the same" if abs(change) < _SAME else f"{name} {change:+.0%}"
        for name, change in (
            ("memory", trial.peak_bytes / before.peak_bytes - 1),
            ("size", trial.size_bytes / before.size_bytes - 1),
        )
    ]
    rest = "" if trial.passed else "; other values are still out of tolerance"
    return f"{', '.join(parts)}{rest}"


def _tried(found: Explanation) -> Iterator[tuple[str, str]]:
    effects, still = [], 0
    for trial in found.trials:
        beside = found.before if trial.whole else found.excerpt
        if trial.change is None or beside is None:
            continue
        if trial.failure:
            effects.append(f"{trial.change.name} could not be tried: {trial.failure}")
        elif not moved(trial.floors, beside.floors):
            still += 1
        elif not (trial.fixes and trial.whole):
            effects.append(_effect(found, trial))
    text = f"{count(len(found.trials), 'setting')} in {found.took_s:.0f} s"
    if still:
        text += f"; {still} of them changed the error by no more than {MOVED:.0%}"
    yield "tried", text
    if found.excerpt is not None:
        yield "", f"the operators around it alone {_shows(found.excerpt)}"
    if found.skipped:
        names = few([change.name for change in found.skipped])
        yield "", f"skipped, since another setting fixes it: {names}"
    for effect in effects:
        yield "", effect


def _shows(excerpt: Trial) -> str:
    if excerpt.failure:
        return f"could not be run: {excerpt.failure}"
    return "do not show it" if excerpt.agrees else "show it"
