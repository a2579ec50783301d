"""The same findings as Markdown, for a pull request or a CI's step summary."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.judged import CaseVerdict, coverage_share
from harness.report.record import LAYERS, OUTPUTS, CaseRecord, labels
from harness.report.text import Line


def markdown(
    records: Sequence[CaseRecord],
    verdicts: Sequence[CaseVerdict],
    lines: Sequence[Line],
    run: str,
) -> str:
    """Return the summary and one table row a case."""
    by_check = {(*verdict.key, verdict.what): verdict for verdict in verdicts}
    names = labels(records)
    body = "\n".join(line.text for line in lines)
    head = f"## Parity {run}\n\n```text\n{body}\n```\n"
    if not records:
        return head
    table = [
        "| case | layers | outputs | worst output | SQNR dB | coverage |",
        "|---|---|---|--:|--:|--:|",
    ]
    for record in records:
        layers, outputs = (
            by_check.get((*record.key, what)) for what in (LAYERS, OUTPUTS)
        )
        table.append(
            f"| {names[record.key]} | {_outcome(layers)} | {_outcome(outputs)} "
            f"| {_floors(outputs)} | {_sqnr(outputs)} | {_coverage(record)} |"
        )
    return f"{head}\n" + "\n".join(table) + "\n"


def _outcome(verdict: CaseVerdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.outcome.value if verdict.outcome.passed else f"**{verdict.outcome}**"


def _floors(verdict: CaseVerdict | None) -> str:
    values = [
        judged.row.comparison.floor_multiple
        for judged in (verdict.rows if verdict else ())
    ]
    known = [value for value in values if value is not None]
    return f"{max(known):.3g} floors" if known else ""


def _sqnr(verdict: CaseVerdict | None) -> str:
    values = [
        judged.row.comparison.sqnr_db for judged in (verdict.rows if verdict else ())
    ]
    return f"{min(values):.1f}" if values else ""


def _coverage(record: CaseRecord) -> str:
    return f"{coverage_share(record):.1%}" if record.coverage else ""
