"""The values of a component or pipeline: one table, and curves of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.record import OUTPUTS, SELF, CaseRecord
from harness.core.table import Column, ReportTable
from harness.judge.value import JudgedRow, judge
from harness.plugins.page.charts import PALETTE, Curve
from harness.plugins.pictures.words import CURVES
from harness.report.run_facts import BAD, RunFacts
from harness.report.tables import error_columns, place_cell, worst_rows

Values = dict[str, list[JudgedRow]]
"""Name of a case to its values, each the worst of all samples."""


def name_of(record: CaseRecord) -> str:
    """Return the name of a case among those of its component."""
    return f"{record.backend} {record.variant}"


def values_of(facts: RunFacts, records: Sequence[CaseRecord]) -> Values:
    """Return the compared values of each case, in order of execution."""
    return {name_of(record): worst_rows(facts.checks[record.key]) for record in records}


def values_table(
    ident: str, caption: str, values: Values, records: Sequence[CaseRecord]
) -> ReportTable:
    """Return a table with a row for each value of each case, the worst first."""
    found = [(record, one) for record in records for one in values[name_of(record)]]
    verdicts = [judged.verdict for _, judged in found]
    rows = [judged.row for _, judged in found]
    usages = [verdict.usage for verdict in verdicts]
    return ReportTable(
        id=ident,
        caption=caption,
        columns=(
            Column("", [one.outcome.value for one in verdicts], "mark", "agrees?"),
            Column("where", [place_cell(judged) for _, judged in found], "place"),
            Column("of limit", usages, "percent", "how much of its bound is used"),
            *error_columns(found),
            Column("case", [name_of(record) for record, _ in found]),
            Column("check", [row.what for row in rows], minor=True),
            Column("sample", [row.sample for row in rows], minor=True),
        ),
        sort="of limit",
        unit="value",
    )


def curves_of(
    values: Values,
    records: Sequence[CaseRecord],
    drawn: Sequence[CaseRecord],
    *,
    steps: bool,
) -> list[Curve]:
    """Return the errors of each case along its places.

    The chart shows the cases in `drawn` at first. With `steps`, places are the steps of
    a pipeline, which have two curves a case: errors that feed back, and those of single
    steps. Otherwise a place is a value; outputs come after the last layer.
    """
    places = {_place(one) for ordered in values.values() for one in ordered}
    x_of = {place: at for at, place in enumerate(sorted(places))}
    curves, first_row = [], 0
    for at, record in enumerate(records):
        numbered = list(enumerate(values[name_of(record)], first_row))
        first_row += len(numbered)
        for kind in reversed(CURVES) if steps else ("",):
            rows = [(row, j) for row, j in numbered if not kind or j.row.op == kind]
            curves.append(
                Curve(
                    case=name_of(record),
                    x=[
                        j.row.position // 2 + 1 if steps else x_of[_place(j)]
                        for _, j in rows
                    ],
                    y=[judged.verdict.usage for _, judged in rows],
                    limits=[judged.verdict.tolerance.floors for _, judged in rows],
                    rows=[row for row, _ in rows],
                    passed=[judged.verdict.passed for _, judged in rows],
                    shown=record in drawn,
                    dashed=kind == CURVES[0],
                    colour=at % len(PALETTE),
                )
            )
        if own := [(row, j) for row, j in numbered if j.own and not steps]:
            shown = record in drawn
            curves.append(_own_curve(name_of(record), own, x_of, at, shown=shown))
    return curves


def _own_curve(
    case: str,
    rows: Sequence[tuple[int, JudgedRow]],
    x_of: Mapping[tuple[bool, int, str], int],
    at: int,
    *,
    shown: bool,
) -> Curve:
    """Return PyTorch's own error in fewer bits, judged by the limits of a case."""
    within = next(j.verdict.tolerance.within for _, j in rows)
    return Curve(
        case=f"{case}, the model's own {SELF[within or '']}",
        x=[x_of[_place(judged)] for _, judged in rows],
        y=[_own_usage(judged) for _, judged in rows],
        rows=[row for row, _ in rows],
        shown=shown,
        colour=at % len(PALETTE),
    )


def _own_usage(judged: JudgedRow) -> float:
    own, tolerance = judged.own, judged.verdict.tolerance
    assert own is not None  # noqa: S101  # the caller looked
    return judge(own, tolerance, is_output=False, own=own).usage


def _place(judged: JudgedRow) -> tuple[bool, int, str]:
    row = judged.row
    return row.what == OUTPUTS, row.position, row.probe


def drawn_first(facts: RunFacts, records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Return the cases that a chart shows at first: a runtime's first, and failures."""
    plainest: dict[str, str] = {}
    for record in records:
        if record.rows:
            plainest.setdefault(record.backend, record.case)
    return [
        record
        for record in records
        if record.rows
        and (record.case in plainest.values() or facts.state(record) == BAD)
    ]


def loudest(values: Values) -> tuple[str, JudgedRow] | None:
    """Return the value that uses most of its tolerance, and its case."""
    every = [(case, judged) for case, rows in values.items() for judged in rows]
    return max(every, key=lambda pair: pair[1].verdict.usage, default=None)
