"""Say when reality has moved inside a tolerance, before it leaves it.

A case drifts when more than half of the headroom that it was tuned with is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.commands.tune.extent import Headroom, strained
from harness.core.outcome import Outcome
from harness.core.record import OUTPUTS, Row
from harness.judge.case import CaseVerdict
from harness.judge.tolerance import GROUPS
from harness.judge.value import Verdict, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One check of one case that has moved.

    Attributes:
        id: ``component/backend/variant/what``.
        alarm: Whether it has left the tolerance already.
        row: Where it is nearest its limit.
        verdict: Of that row, as it is.
        reason: One sentence.

    """

    id: str
    alarm: bool
    row: Row | None
    verdict: Verdict | None
    reason: str


def drifts(verdicts: Iterable[CaseVerdict], headroom: Headroom) -> Iterator[Drift]:
    """Yield each check that fails, or that leaves less than half of the headroom."""
    for verdict in verdicts:
        if not verdict.outcome.passed:
            yield Drift(
                id=verdict.id,
                alarm=True,
                row=verdict.worst.row if verdict.worst else None,
                verdict=verdict.worst.verdict if verdict.worst else None,
                reason=f"{verdict.id} is out of tolerance: {verdict.reason}",
            )
            continue
        if verdict.outcome is not Outcome.WITHIN or verdict.what not in GROUPS:
            continue
        moved = [
            judged
            for judged in verdict.rows
            if judged.verdict.passed
            and not judge(
                strained(judged.verdict.comparison, headroom.half),
                judged.verdict.tolerance,
                is_output=verdict.what == OUTPUTS,
                allow_nonfinite=True,
                allow_constant=True,
                allow_misread=True,
            ).passed
        ]
        if not moved:
            continue
        worst = max(moved, key=lambda judged: judged.verdict.usage)
        where = worst.row.module or worst.row.probe
        yield Drift(
            id=verdict.id,
            alarm=False,
            row=worst.row,
            verdict=worst.verdict,
            reason=(
                f"{verdict.id} has moved towards its limit: {where} "
                f"({worst.row.sample}) {worst.verdict.reason}"
            ),
        )
