"""Tables of a run that Markdown, its page and a screen show alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.core.record import ISOLATED, OUTPUTS, CaseRecord, Row, coverage_share
from harness.core.table import Column, ReportTable
from harness.core.text import FLOORS, operator
from harness.judge.case import CaseVerdict
from harness.judge.value import JudgedRow, max_floors, own_times
from harness.measure.metrics import METRIC, TUNED, Metric
from harness.report.run_facts import RunFacts, least_sqnr

_ALWAYS = ("atol", "floors", "sqnr_db")
"""Bounds with a column in every listing; atol's column is the largest error."""


def cases_table(facts: RunFacts) -> ReportTable:
    """Return a row for each case, with the outcomes of its checks."""
    records = facts.requested
    checks = [facts.checks[record.key] for record in records]
    early, late = zip(*map(facts.both, records), strict=True)
    outcomes = [
        min(some, key=lambda one: one.outcome.passed).outcome for some in checks
    ]
    worst = [max(some, key=lambda check: check.usage) for some in checks]
    floors = [max_floors(one.rows) if one else None for one in late]
    nodes = [record.node for record in records]
    return ReportTable(
        id="cases-table",
        caption="Every case and the outcomes of its checks",
        unit="case",
        columns=(
            Column("", [outcome.value for outcome in outcomes], "mark", "agrees?"),
            Column("component", [facts.subject(one) for one in records]),
            Column("runtime", [one.backend for one in records]),
            Column("variant", [one.variant for one in records]),
            _outcomes(
                "layers", early, "values in between: layers; of a pipeline, latents"
            ),
            _outcomes("outputs", late, "outputs as deployed; of a pipeline, pictures"),
            Column(
                "of limit",
                [one.usage if one.worst else None for one in worst],
                "percent",
                "how much of its bound the worst value uses",
            ),
            Column(
                "worst at",
                [place_cell(one.worst) if one.worst else ("",) * 4 for one in worst],
                "place",
                minor=True,
            ),
            Column(
                "floors",
                floors,
                "number",
                f"of the worst output, {FLOORS}",
                minor=True,
            ),
            Column(
                "SQNR dB",
                [least_sqnr(one) for one in late],
                "decibels",
                "signal to error of the worst output, decibels",
                minor=True,
            ),
            Column(
                "coverage %",
                [100 * coverage_share(r) if r.coverage else None for r in records],
                "number",
                "computing operators that were compared",
                minor=True,
            ),
            *(
                [Column("node", nodes, hint="of the cluster", minor=True)]
                if any(nodes)
                else ()
            ),
        ),
        sort="of limit",
    )


def _outcomes(name: str, checks: Iterable[CaseVerdict | None], words: str) -> Column:
    outcomes = [check.outcome.value if check else "" for check in checks]
    return Column(name, outcomes, "outcome", words, minor=True)


def worst_rows(verdicts: Sequence[CaseVerdict], sample: str = "") -> list[JudgedRow]:
    """Return each value's row of one sample, in order of execution.

    If no sample is named, it is the worst row of all samples.
    """
    worst: dict[tuple[str, str], JudgedRow] = {}
    for verdict in verdicts:
        for judged in verdict.rows:
            row = judged.row
            if sample and row.sample != sample:
                continue
            kept = worst.get((row.what, row.probe))
            if kept is None or judged.verdict.usage > kept.verdict.usage:
                worst[row.what, row.probe] = judged
    # An output's position counts outputs; a layer's counts the whole program.
    return sorted(worst.values(), key=lambda j: (j.row.what == OUTPUTS, j.row.position))


def place_cell(judged: JudgedRow) -> tuple[str, str, str, str]:
    """Return a value's module, operator, shape and source line."""
    row = judged.row
    op = ", ".join(filter(None, (operator(row.op), judged.another)))
    shape = "×".join(map(str, row.comparison.expected_shape))
    return row.place, op, shape, row.source


def error_columns(found: Sequence[tuple[CaseRecord, JudgedRow]]) -> list[Column]:
    """Return the columns of the errors of values, each value with its case's record."""
    rows = [judged.row for _, judged in found]
    columns = []
    # Only a case with PyTorch has noise floors.
    if any(row.comparison.floor_multiple is not None for row in rows):
        columns.append(_column("floors", "number", rows, FLOORS))
    local = _local({record.key: record for record, _ in found}.values())
    if local:
        hint = "floors that the operator causes alone, on the reference's own inputs"
        cells = [local.get((*record.key, one.row.probe)) for record, one in found]
        columns.append(Column("local", cells, "number", hint))
    columns += [
        _column("max_abs", "sci", rows, minor=True),
        _column("sqnr_db", "decibels", rows, minor=True),
    ]
    if any(judged.own for _, judged in found):
        hint = "error divided by PyTorch's own error in the dtype that bounds it"
        times = [
            own_times(one.row.comparison, one.own) if one.own else None
            for _, one in found
        ]
        columns.append(Column("× own", times, "number", hint))
    more = further_metrics([judged for _, judged in found])
    return columns + [_column(metric.name, "sci", rows) for metric in more]


def _local(records: Iterable[CaseRecord]) -> dict[tuple[str, str, str], float | None]:
    return {
        (*record.key, row.probe): row.comparison.floor_multiple
        for record in records
        for row in record.rows
        if row.what == ISOLATED
    }


def _column(
    name: str, kind: str, rows: Sequence[Row], hint: str = "", *, minor: bool = False
) -> Column:
    metric = METRIC[name]
    cells = [metric.of(row.comparison) for row in rows]
    return Column(metric.title, cells, kind, hint or metric.hint, minor=minor)


def further_metrics(rows: Sequence[JudgedRow]) -> list[Metric]:
    """Return the metrics that a tolerance bounds, without those that have a column."""
    return [
        metric
        for metric in TUNED
        if metric.name not in _ALWAYS
        and any(judged.verdict.tolerance.limit(metric) is not None for judged in rows)
    ]
