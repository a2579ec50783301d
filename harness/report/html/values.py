"""The values of a component or pipeline: one table, and curves of the same rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from harness.core.record import ISOLATED, OUTPUTS, CaseRecord
from harness.core.text import count, operator
from harness.judge.case import JudgedRow
from harness.measure.metrics import METRIC
from harness.report.html.charts import PALETTE, Curve
from harness.report.html.found import BAD, Found
from harness.report.html.table import Column, Table, Words, short
from harness.report.layers import further_metrics, worst_rows

Values = dict[str, list[JudgedRow]]
"""Name of a case to its values, each the worst of all samples."""

OF_LIMIT = 3
"""Column of `values_table` that says how much of its tolerance a value uses."""


def values_of(found: Found, records: Sequence[CaseRecord]) -> Values:
    """Return the compared values of each case, in order of execution."""
    return {name_of(record): worst_rows(found.checks[record.key]) for record in records}


def name_of(record: CaseRecord) -> str:
    """Return how a case is called among those of its component."""
    return f"{record.backend} {record.variant}"


def values_table(
    ident: str, caption: str, values: Values, records: Sequence[CaseRecord]
) -> Table:
    """Return a table with a row for each value of each case, the worst first."""
    places, outcomes, cases = Words(), Words(), Words()
    samples, checks = Words(), Words()
    own = _own(records)
    more = further_metrics([one for ordered in values.values() for one in ordered])
    rows: list[list[Any]] = []
    for case, ordered in values.items():
        for judged in ordered:
            row, c = judged.row, judged.row.comparison
            shape = "×".join(map(str, c.expected_shape))
            place = (row.module or row.probe, operator(row.op), shape, row.source)
            cells = [
                outcomes.at(judged.verdict.outcome.value),
                places.at(place),
                short(c.floor_multiple),
                short(judged.verdict.usage),
                short(c.max_abs),
                short(c.sqnr_db),
                cases.at(case),
                checks.at(row.what),
                samples.at(row.sample),
            ]
            if own:
                cells.append(short(own.get((case, row.probe))))
            cells += [short(metric.of(c)) for metric in more]
            rows.append(cells)
    columns = [
        Column(title="", kind="mark", hint="within its tolerance?", words=outcomes.all),
        Column(title="where", kind="place", words=places.all),
        _column("floors", "number"),
        Column(title="of limit", kind="percent", hint="how much of its bound is used"),
        replace(_column("max_abs", "sci"), minor=True),
        replace(_column("sqnr_db", "number"), minor=True),
        Column(title="case", words=cases.all),
        Column(title="check", words=checks.all, minor=True),
        Column(title="sample", words=samples.all, minor=True),
    ]
    if own:
        hint = "floors that the operator adds by itself, on PyTorch's own inputs"
        columns.append(Column(title="own", kind="number", hint=hint))
    columns += [_column(metric.name, "sci") for metric in more]
    return Table(
        id=ident,
        caption=caption,
        columns=columns,
        rows=rows,
        sort=OF_LIMIT,
        unit="value",
    )


def _column(name: str, kind: str) -> Column:
    """Return a column of a metric."""
    return Column(title=METRIC[name].title, kind=kind, hint=METRIC[name].hint)


def _own(records: Iterable[CaseRecord]) -> dict[tuple[str, str], float | None]:
    """Return what operators introduce by themselves, where that was measured."""
    return {
        (name_of(record), row.probe): row.comparison.floor_multiple
        for record in records
        for row in record.rows
        if row.what == ISOLATED
    }


def curves_of(
    found: Found, records: Sequence[CaseRecord], values: Values
) -> list[Curve]:
    """Return a curve a case over all places; outputs come after the last layer."""
    places = {
        (judged.row.what == OUTPUTS, judged.row.position, judged.row.probe)
        for ordered in values.values()
        for judged in ordered
    }
    x_of = {place: at for at, place in enumerate(sorted(places))}
    drawn = drawn_first(found, records)
    curves, first_row = [], 0
    for at, record in enumerate(records):
        ordered = values[name_of(record)]
        curves.append(
            Curve(
                case=name_of(record),
                x=[
                    x_of[j.row.what == OUTPUTS, j.row.position, j.row.probe]
                    for j in ordered
                ],
                y=[judged.floors for judged in ordered],
                rows=list(range(first_row, first_row + len(ordered))),
                passed=[judged.verdict.passed for judged in ordered],
                shown=record in drawn,
                colour=at % len(PALETTE),
            )
        )
        first_row += len(ordered)
    return curves


def drawn_first(found: Found, records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Return the cases that a chart shows at first: a runtime's plainest, failures."""
    plainest: dict[str, CaseRecord] = {}
    for record in records:
        if record.rows:
            plainest.setdefault(record.backend, record)
    return [
        record
        for record in records
        if record.rows and (record in plainest.values() or found.state(record) == BAD)
    ]


def limits_of(
    values: Values, drawn: Sequence[CaseRecord], what: str
) -> dict[str, float]:
    """Return the bounds in floors that the drawn cases are held to, each once.

    Args:
        values: Of each case.
        drawn: Cases that a chart shows at first.
        what: The check that the bounds are of.

    """
    limits: dict[float, list[str]] = {}
    for record in drawn:
        bounds = Counter(
            judged.verdict.tolerance.floors
            for judged in values[name_of(record)]
            if judged.row.what == what
        )
        # Where single values have a bound of their own, most have another.
        for at, (floors, number) in enumerate(bounds.most_common()):
            if floors is not None:
                some = f", {count(number, 'value')}" if at else ""
                limits.setdefault(floors, []).append(f"{name_of(record)}{some}")
    return {", ".join(names): floors for floors, names in limits.items()}


def gist_of(found: Found, records: Sequence[CaseRecord], values: Values) -> str:
    """Return how many cases agree, and the value nearest to its limit, or beyond."""
    bad = [record for record in records if found.state(record) == BAD]
    gaps = [record for record in records if found.by_gap(record)]
    words = [count(len(records), "case")]
    if bad:
        words[0] = f"{len(records) - len(bad):,} of {words[0]} agree"
    if gaps:
        words[0] += f", {len(gaps):,} by a known gap"
    # What is known to be off has its own words; the others' nearest says more.
    told = {name_of(record) for record in records if record not in gaps}
    worst = loudest({case: rows for case, rows in values.items() if case in told})
    if worst is not None:
        case, judged = worst
        words.append(f"{judged.row.module or judged.row.probe} in {case}")
        words.append(of_limit(judged.verdict.usage))
    return " · ".join(words)


def of_limit(usage: float) -> str:
    """Return a part of a limit as a person says it.

    >>> of_limit(0.824), of_limit(61.7)
    ('82 % of its limit', '62 × its limit')
    """
    many = 10.0
    if math.isinf(usage):
        return "beyond any limit"
    if usage >= many:
        return f"{usage:,.0f} × its limit"
    return f"{usage * 100:,.0f} % of its limit"


def loudest(values: Values) -> tuple[str, JudgedRow] | None:
    """Return the value that uses most of its tolerance, and its case."""
    every = [(case, judged) for case, rows in values.items() for judged in rows]
    return max(every, key=lambda pair: pair[1].verdict.usage, default=None)
