"""What a page is made from, and what every part of a page is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from harness.core.outcome import Outcome
from harness.core.pipeline import MIXED, WHATS
from harness.core.record import CaseRecord, Key, labels
from harness.judge.case import CaseVerdict, skipped
from harness.report.html.since import Since

GOOD, BAD, QUIET = "good", "bad", "quiet"
"""What a part says, for its mark and its colour."""

MARKS = {GOOD: "✓", BAD: "✗", QUIET: "–"}
"""So that nothing is told by colour alone."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A finished run and its verdicts.

    Attributes:
        run: Name of the run.
        records: Of all cases.
        verdicts: Of all checks that were asked for.
        exit_code: 0 parity, 1 none, 2 could not tell.
        about: The run's environment, command and suites, as ``report.json`` has them.
        folder: Where the run's pictures lie.
        stale: Complaints about files that describe the run.
        required: Backends that may not be skipped.
        since: What changed since a baseline, if the run was held against one.

    """

    run: str
    records: Sequence[CaseRecord]
    verdicts: Sequence[CaseVerdict]
    exit_code: int
    about: Mapping[str, Any]
    folder: Path
    stale: Sequence[str] = ()
    required: Collection[str] = ()
    since: Since | None = None

    @cached_property
    def names(self) -> dict[Key, str]:
        """How each case is called."""
        return labels(self.records)

    @cached_property
    def checks(self) -> dict[Key, list[CaseVerdict]]:
        """The verdicts of each case."""
        checks: dict[Key, list[CaseVerdict]] = {}
        for verdict in self.verdicts:
            checks.setdefault(verdict.key, []).append(verdict)
        return checks

    @cached_property
    def asked(self) -> list[CaseRecord]:
        """Records of the cases that were asked for, the plainest first."""
        return sorted(
            (record for record in self.records if record.key in self.checks),
            key=lambda record: (
                record.backend == MIXED,
                record.variant != "fp32",
                record.case,
            ),
        )

    def state(self, record: CaseRecord) -> str:
        """Return whether a case agrees, does not, or was skipped."""
        checks = self.checks[record.key]
        if any(skipped(check, self.required) for check in checks):
            return QUIET
        return GOOD if all(check.outcome.passed for check in checks) else BAD

    def by_gap(self, record: CaseRecord) -> bool:
        """Whether a case agrees only as it is known not to."""
        outcomes = {check.outcome for check in self.checks[record.key]}
        return self.state(record) == GOOD and Outcome.GAP in outcomes

    def subjects(self, *, chains: bool) -> dict[str, list[CaseRecord]]:
        """Return the cases of each component, or of each pipeline."""
        subjects: dict[str, list[CaseRecord]] = {}
        for record in sorted(self.asked, key=lambda record: record.component):
            whats = {check.what for check in self.checks[record.key]}
            if bool(whats & set(WHATS)) == chains:
                suite = self.names[record.key].removesuffix(record.case)
                subjects.setdefault(suite + record.component, []).append(record)
        return subjects


def state_of(states: Collection[str]) -> str:
    """Return what several cases say together: the worst of them."""
    if BAD in states:
        return BAD
    return GOOD if GOOD in states else QUIET


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the page; a subclass names the template that draws it.

    Attributes:
        id: Anchor in the page.
        title: Heading.
        state: Whether it agrees, does not, or says neither.
        gist: One line that is read without opening it.
        open: Whether it is open at first.

    """

    template: ClassVar[str]

    id: str
    title: str
    state: str = QUIET
    gist: str = ""
    open: bool = field(default=False)

    @property
    def mark(self) -> str:
        """A sign for its state."""
        return MARKS[self.state]
