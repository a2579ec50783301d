"""Known gaps: failures that are expected, each with its reason. They are strict.

    [[gap]]
    case = "unet/mnn/fused/outputs"   # shell pattern over ids; * also crosses /
    outcome = "exceeds"               # failing in any other way is still a failure
    why = "the converter fuses GELU into its tanh form"
    issue = "https://github.com/alibaba/MNN/issues/1"   # optional; text or number
    until = 2027-01-01                # optional; the last day it holds
    who = "A. Reviewer"               # optional; who accepted it
    sometimes = true                  # optional; it may also pass, by chance

If two gaps match an id, the first one in the file counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from harness.core.outcome import Outcome
from harness.core.toml_file import TomlFile
from harness.core.toml_schema import Keys, Word, one_of, read

# A success is not a gap, and a missing runtime is not a failure of the case.
_EXPECTABLE = tuple(
    outcome.value
    for outcome in Outcome
    if not outcome.passed and outcome not in {Outcome.STALE_GAP, Outcome.UNAVAILABLE}
)


class GapEntry(Keys, frozen=True, kw_only=True):
    """One failure that is known.

    Attributes:
        case: Shell pattern over ids such as unet/mnn/fp32/outputs; ``*`` also crosses
            slashes.
        outcome: How it fails; failing in any other way is still a failure.
        why: The reason.
        issue: Where it is being worked on, a text or a number.
        until: The last day on which the gap is accepted. Without it, the gap has no
            last day.
        who: Who accepted it.
        sometimes: Whether it may also pass, because what is at fault works by chance.

    """

    case: Word
    outcome: Annotated[str, one_of(_EXPECTABLE)]
    why: Word
    issue: str | int = ""
    until: date | None = None
    who: str = ""
    sometimes: bool = False


class GapsFile(Keys, frozen=True, kw_only=True):
    """Known gaps: failures that are expected, each with its reason.

    Attributes:
        gap: The gaps; of two that match an id the first speaks.

    """

    gap: tuple[GapEntry, ...] = ()


class Gap(GapEntry, frozen=True, kw_only=True):
    """One known failure as it was read from the file, at `source`, ``path:line``."""

    outcome: Outcome
    issue: str = ""
    source: str = ""

    def matches(self, id_: str) -> bool:
        """Whether the gap applies to this id."""
        return fnmatchcase(id_, self.case)

    @property
    def words(self) -> str:
        """The gap's reason, in the form of a verdict's reason."""
        return f"known gap: {self.why}{_issue(self)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An outcome after the known gaps were applied: as it was, a gap, or a stale gap.

    The reason is that of the gap, or why it is stale; empty without a gap.
    """

    outcome: Outcome
    reason: str = ""
    gap: Gap | None = None


def load_gaps(path: Path) -> tuple[Gap, ...]:
    """Read known_gaps.toml.

    Raises:
        SuiteError: The file is not TOML, a word in it is unknown, or a gap has no
            reason.

    """
    return gaps_of(TomlFile.load(path))


def gaps_of(file: TomlFile) -> tuple[Gap, ...]:
    """Return the gaps of a file that was read.

    Raises:
        SuiteError: A word in it is unknown, or a gap has no reason.

    """
    gaps: dict[str, Gap] = {}
    for entry in read(file.root, GapsFile).gap:
        told = msgspec.structs.asdict(entry) | {
            "outcome": Outcome(entry.outcome),
            "why": entry.why.strip(),
            "issue": str(entry.issue),
            "who": entry.who.strip(),
        }
        gap = Gap(**told, source=entry.place.where())
        if gap.case in gaps:
            text = f"gap {gap.case!r} is already at {gaps[gap.case].source}."
            raise entry.error(text, "case")
        gaps[gap.case] = gap
    return tuple(gaps.values())


def apply(
    gaps: Iterable[Gap],
    id_: str,
    outcome: Outcome,
    today: date,
    also: Collection[Outcome] = (),
) -> Applied:
    """Return what the outcome of a check becomes under the first gap that matches.

    `also` has the outcomes of what fails besides, which a gap must not hide. A gap is
    stale if its last day is over, or if the case no longer fails in the expected way
    alone. A stale gap is a failure, so that the list stays correct. A gap with
    `sometimes` may pass. A case that could not run on this machine has no effect on its
    gap. A gap still holds on its last day.
    """
    gap = find(gaps, id_)
    could_not = outcome in {Outcome.UNAVAILABLE, Outcome.ABSENT}
    if gap is None or (could_not and outcome is not gap.outcome):
        return Applied(outcome=outcome)
    if gap.until is not None and today > gap.until:
        by = f", accepted by {gap.who}" if gap.who else ""
        expired = f"gap expired {gap.until}{_issue(gap)}{by}"
        stale = f"{expired}; it is {outcome.value} today"
    elif {outcome, *also} == {gap.outcome}:
        return Applied(outcome=Outcome.GAP, reason=gap.words, gap=gap)
    elif outcome.passed and gap.sometimes:
        reason = f"{gap.words}; not in this file"
        return Applied(outcome=Outcome.GAP, reason=reason, gap=gap)
    elif outcome.passed:
        stale = f"gap says {gap.outcome.value}, and it passes; remove the gap"
    else:
        ways = " and ".join(dict.fromkeys((outcome.value, *also)))
        stale = f"gap says {gap.outcome.value}, and it is {ways}"
        if outcome is gap.outcome and Outcome.EXCEEDS in also:
            stale += "; state in tolerances.toml how far the numbers may be off"
    reason = f"{stale} ({gap.source})" if gap.source else stale
    return Applied(outcome=Outcome.STALE_GAP, reason=reason, gap=gap)


def find(gaps: Iterable[Gap], id_: str) -> Gap | None:
    """Return the first gap that applies to an id, or None."""
    return next((gap for gap in gaps if gap.matches(id_)), None)


def unmatched(gaps: Iterable[Gap], seen_ids: Iterable[str]) -> tuple[Gap, ...]:
    """Return the gaps that applied to nothing, hidden ones included.

    The result means something only if `seen_ids` is the whole suite.
    """
    gaps = tuple(gaps)
    spoke = {find(gaps, id_) for id_ in seen_ids}
    return tuple(gap for gap in gaps if gap not in spoke)


def _issue(gap: Gap) -> str:
    return f" (issue {gap.issue})" if gap.issue else ""
