"""Detect measurements that have moved inside a tolerance, before they exceed it.

A check has moved if it uses more than half of the headroom that it was tuned with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.commands.tune.headroom import Headroom, fits
from harness.core.outcome import Outcome
from harness.core.text import Line, count, wrapped
from harness.judge.case import CaseVerdict
from harness.judge.tolerance import GROUPS
from harness.judge.value import JudgedRow


def drift_lines(
    verdicts: Iterable[CaseVerdict], headroom: Headroom, name: str
) -> tuple[list[Line], bool]:
    """Return a sentence for each check that has moved, and whether one has.

    Args:
        verdicts: The checks of a run or a tuning.
        headroom: The headroom that they were tuned with.
        name: The name of the run or the tuning.

    """
    lines: list[Line] = []
    checks = moved = 0
    for verdict in verdicts:
        checks += 1
        if not verdict.outcome.passed:
            text = f"✗ {verdict.id} is out of tolerance: {verdict.reason}"
            lines += wrapped(text, indent=" ", tone="bad")
        elif rows := list(_moved(verdict, headroom)):
            worst = max(rows, key=lambda judged: judged.verdict.usage)
            text = (
                f"! {verdict.id} has moved towards its limit: "
                f"{worst.row.place} ({worst.row.sample}) "
                f"{worst.verdict.reason}"
            )
            lines += wrapped(text, indent=" ")
        else:
            continue
        moved += 1
    text = (
        f"{checks - moved:,} of {count(checks, 'check')} of {name} keep half of their "
        "headroom or more."
    )
    lines.append(Line(text=text, tone="" if moved else "good"))
    if moved:
        text = "next  parity tune COMPONENT, to see whether it is the build"
        lines.append(Line(text=text))
    return lines, moved > 0


def _moved(verdict: CaseVerdict, headroom: Headroom) -> Iterator[JudgedRow]:
    """Yield the rows of a check that leave less than half of the headroom."""
    if verdict.outcome is not Outcome.WITHIN or verdict.what not in GROUPS:
        return
    for judged in verdict.rows:
        comparison, tolerance = judged.verdict.comparison, judged.verdict.tolerance
        if judged.verdict.passed and not fits(comparison, tolerance, headroom.half):
            yield judged
