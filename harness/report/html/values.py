"""The values of a component or pipeline: one table, and curves of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.core.record import ISOLATED, OUTPUTS, CaseRecord
from harness.core.text import FLOORS, operator
from harness.judge.pipeline import CURVES
from harness.judge.value import JudgedRow
from harness.measure.metrics import METRIC
from harness.report.html.charts import PALETTE, Curve
from harness.report.html.table import Column, HtmlTable, Words, short
from harness.report.layers import further_metrics, worst_rows
from harness.report.run_facts import BAD, RunFacts

Values = dict[str, list[JudgedRow]]
"""Name of a case to its values, each the worst of all samples."""

OF_LIMIT = 3
"""Column of `values_table` that gives the used share of a value's tolerance."""


def name_of(record: CaseRecord) -> str:
    """Return the name of a case among those of its component."""
    return f"{record.backend} {record.variant}"


def values_of(facts: RunFacts, records: Sequence[CaseRecord]) -> Values:
    """Return the compared values of each case, in order of execution."""
    return {name_of(record): worst_rows(facts.checks[record.key]) for record in records}


def place_cell(judged: JudgedRow) -> tuple[str, str, str, str]:
    """Return a value's module, operator, shape and source line."""
    row = judged.row
    shape = "×".join(map(str, row.comparison.expected_shape))
    return (row.place, operator(row.op), shape, row.source)


def values_table(
    ident: str, caption: str, values: Values, records: Sequence[CaseRecord]
) -> HtmlTable:
    """Return a table with a row for each value of each case, the worst first."""
    places, outcomes, cases = Words(), Words(), Words()
    samples, checks = Words(), Words()
    local = {
        (name_of(record), row.probe): row.comparison.floor_multiple
        for record in records
        for row in record.rows
        if row.what == ISOLATED
    }
    more = further_metrics([one for ordered in values.values() for one in ordered])
    rows: list[list[Any]] = []
    for case, ordered in values.items():
        for judged in ordered:
            row, c = judged.row, judged.row.comparison
            cells = [
                outcomes.at(judged.verdict.outcome.value),
                places.at(place_cell(judged)),
                short(c.floor_multiple),
                short(judged.verdict.usage),
                short(c.max_abs),
                short(c.sqnr_db),
                cases.at(case),
                checks.at(row.what),
                samples.at(row.sample),
            ]
            if local:
                cells.append(short(local.get((case, row.probe))))
            cells += [short(metric.of(c)) for metric in more]
            rows.append(cells)
    columns = [
        Column(title="", kind="mark", hint="within its tolerance?", words=outcomes.all),
        Column(title="where", kind="place", words=places.all),
        replace(_column("floors", "number"), hint=FLOORS),
        Column(title="of limit", kind="percent", hint="how much of its bound is used"),
        replace(_column("max_abs", "sci"), minor=True),
        replace(_column("sqnr_db", "number"), minor=True),
        Column(title="case", words=cases.all),
        Column(title="check", words=checks.all, minor=True),
        Column(title="sample", words=samples.all, minor=True),
    ]
    if local:
        hint = "floors that the operator causes alone, on PyTorch's own inputs"
        columns.append(Column(title="local", kind="number", hint=hint))
    columns += [_column(metric.name, "sci") for metric in more]
    return HtmlTable(
        id=ident,
        caption=caption,
        columns=columns,
        rows=rows,
        sort=OF_LIMIT,
        unit="value",
    )


def _column(name: str, kind: str) -> Column:
    return Column(title=METRIC[name].title, kind=kind, hint=METRIC[name].hint)


def curves_of(
    values: Values,
    records: Sequence[CaseRecord],
    drawn: Sequence[CaseRecord],
    *,
    steps: bool,
) -> list[Curve]:
    """Return the errors of each case along its places.

    Args:
        values: Values of each case.
        records: The cases.
        drawn: Cases that the chart shows at first.
        steps: Whether places are the steps of a pipeline, which have two curves a case:
            errors that feed back, and those of single steps. Otherwise a place is a
            value; outputs come after the last layer.

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
    return curves


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
