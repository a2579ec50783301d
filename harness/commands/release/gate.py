"""The release gate: whether a run may ship, each reason, and who accepted what.

    parity gate RUN --baseline digits

A run may ship when every check passes today, nothing is worse than in the baseline or
gone from it, and all of it could be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY, Outcome
from harness.core.record import Key
from harness.judge.case import CaseVerdict, skipped
from harness.judge.known_gaps import Gap, find
from harness.judge.run import gate_code
from harness.report.runs.baseline import Baseline
from harness.report.runs.diff import Diff, Finding

SHIP, DO_NOT_SHIP, CANNOT_SAY = PARITY, NO_PARITY, CANNOT_TELL
"""What the exit codes of a run mean of a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason not to ship.

    Attributes:
        name: The case, and which of its checks or measurements.
        kind: ``worse``, ``gone``, ``incomparable``, ``stale``, or how a check ended.
        words: That in a phrase with numbers.

    """

    name: str
    kind: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Excused:
    """Failures that ship nevertheless, for somebody has accepted them.

    Attributes:
        name: Shell pattern of a known gap, or the id of a check.
        outcome: How it fails.
        count: Of how many checks of the run that is true.
        who: Who accepted it; empty where nobody says.
        until: The last day; None for always.
        why: The reason.

    """

    name: str
    outcome: str
    count: int
    who: str
    until: date | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the gate says of a run.

    Attributes:
        baseline: What the run was held against.
        reasons: Why it may not ship; empty if it may.
        excused: What ships although it fails.
        diff: How the run differs from the baseline.

    """

    baseline: Baseline
    reasons: tuple[Reason, ...]
    excused: tuple[Excused, ...]
    diff: Diff

    @property
    def code(self) -> int:
        """Ship, do not, or cannot say: as an exit code."""
        return gate_code(compared=self.diff.tells, reasons=bool(self.reasons))


def decide(
    baseline: Baseline,
    found: Diff,
    verdicts: Sequence[CaseVerdict],
    *,
    names: Mapping[Key, str],
    gaps: Iterable[Gap],
    stale: Iterable[str] = (),
    required: Collection[str] = (),
) -> Decision:
    """Return whether a run may ship.

    Args:
        baseline: What it is held against.
        found: How it differs from that.
        verdicts: Its checks as judged today.
        names: How its cases are called.
        gaps: The failures that are known.
        stale: Complaints about the files that describe the run.
        required: Backends that may not be skipped.

    """
    gaps = tuple(gaps)
    by_name = {f"{names[v.key]}/{v.what}": v for v in verdicts}
    told = {
        name: verdict
        for name, verdict in sorted(by_name.items())
        if not skipped(verdict, required)
    }
    worse = {f"{finding.case}/{finding.what}": finding for finding in found.blocking}
    failing = {name: v for name, v in told.items() if not v.outcome.passed}
    kept = {
        name
        for name, verdict in failing.items()
        if name in baseline.accepted.failing
        and name not in worse
        and verdict.outcome is not Outcome.STALE_GAP
    }
    reasons = [
        Reason(
            name=name, kind=verdict.outcome.value, words=_why(verdict, worse.get(name))
        )
        for name, verdict in failing.items()
        if name not in kept
    ]
    reasons += [
        Reason(
            # A case that is gone is one reason, however many checks it had.
            name=finding.name,
            kind=finding.change.value,
            words=_with_picture(finding.words, told.get(name)),
        )
        for name, finding in worse.items()
        if name not in failing
    ]
    reasons += [
        Reason(name="the suite", kind="stale", words=complaint) for complaint in stale
    ]
    return Decision(
        baseline=baseline,
        reasons=tuple(dict.fromkeys(reasons)),
        excused=(*_known(gaps, told), *_accepted(baseline, kept, failing)),
        diff=found,
    )


def _why(verdict: CaseVerdict, finding: Finding | None) -> str:
    """Return why a check fails, where it first does, and what it was before."""
    words = verdict.reason
    if verdict.first is not None and verdict.outcome is not Outcome.STALE_GAP:
        words += f"; first at {verdict.first.row.module or verdict.first.row.probe}"
    return _with_picture(f"{words}; {finding.words}" if finding else words, verdict)


def _with_picture(words: str, verdict: CaseVerdict | None) -> str:
    """Add how far the picture is off, and which component brings that."""
    return f"{words}; {verdict.picture}" if verdict and verdict.picture else words


def _known(gaps: Sequence[Gap], told: Mapping[str, CaseVerdict]) -> Iterator[Excused]:
    covered: dict[Gap, int] = {}
    for verdict in told.values():
        gap = find(gaps, verdict.id)
        if gap is not None and verdict.outcome is Outcome.GAP:
            covered[gap] = covered.get(gap, 0) + 1
    for gap, count in covered.items():
        yield Excused(
            name=gap.case,
            outcome=gap.outcome.value,
            count=count,
            who=gap.who,
            until=gap.until,
            why=gap.why + (f" (issue {gap.issue})" if gap.issue else ""),
        )


def _accepted(
    baseline: Baseline, kept: Collection[str], failing: Mapping[str, CaseVerdict]
) -> Iterator[Excused]:
    for name in sorted(kept):
        yield Excused(
            name=name,
            outcome=failing[name].outcome.value,
            count=1,
            who=baseline.accepted.who,
            until=None,
            why=f"{baseline.accepted.why} (with the baseline)",
        )
