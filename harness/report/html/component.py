"""A component's part of the page: its error along the depth, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.core.outcome import Outcome
from harness.core.record import LAYERS, CaseRecord, coverage_share
from harness.core.text import few
from harness.judge.contract import contract_notes
from harness.judge.foreign import all_words
from harness.report.html.charts import Chart, depth_figure, spark_figure
from harness.report.html.found import BAD, Found, Section, state_of
from harness.report.html.table import Table
from harness.report.html.values import (
    Values,
    curves_of,
    drawn_first,
    gist_of,
    limits_of,
    loudest,
    name_of,
    values_of,
    values_table,
)


@dataclass(frozen=True, kw_only=True)
class Component(Section):
    """One component in all its cases.

    Attributes:
        spark: Its chart in small, for a card.
        chart: Error along the depth.
        table: Every value.
        notes: What the chart does not show: failures, skips, observers.

    """

    template: ClassVar[str] = "component.html"

    spark: Chart | None
    chart: Chart | None
    table: Table | None
    notes: Sequence[str] = ()


def components(found: Found) -> Iterator[Component]:
    """Yield a section a component."""
    for number, (name, records) in enumerate(found.subjects(chains=False).items()):
        yield _component(found, f"component-{number}", name, records)


def _component(
    found: Found, ident: str, name: str, records: Sequence[CaseRecord]
) -> Component:
    values = values_of(found, records)
    drawn = drawn_first(found, records)
    states = [found.state(record) for record in records]
    compared = any(values.values())
    spark = chart = table = None
    if compared:
        table = values_table(
            f"{ident}-values",
            f"Values of {name}, the worst of all samples",
            values,
            records,
        )
        curves = curves_of(found, records, values)
        limits = limits_of(values, drawn, LAYERS)
        x_title = "order of execution"
        chart = Chart(
            id=f"{ident}-depth",
            figure=depth_figure(curves, limits, x_title=x_title),
            alt=_alt(name, values, limits),
            table=table.id,
        )
        shown = [curve for curve in curves if curve.shown]
        spark = Chart(
            id=f"{ident}-spark",
            figure=spark_figure(shown, limits),
            alt=f"The same in small: {name}",
            height=64,
            still=True,
        )
    return Component(
        id=ident,
        title=name,
        state=state_of(states),
        gist=gist_of(found, records, values),
        open=BAD in states,
        spark=spark,
        chart=chart,
        table=table,
        notes=tuple(_notes(found, records)),
    )


def _alt(name: str, values: Values, limits: dict[str, float]) -> str:
    worst = loudest(values)
    text = f"Error of {name} in noise floors along its depth, one curve a case."
    if worst is not None:
        case, judged = worst
        place = judged.row.module or judged.row.probe
        text += f" Nearest to its limit: {place} in {case}, {judged.verdict.reason}."
    if limits:
        bounds = "; ".join(f"{who} {floors:g}" for who, floors in limits.items())
        text += f" Limits of layers: {bounds}."
    return text


def _notes(found: Found, records: Sequence[CaseRecord]) -> Iterator[str]:
    """Yield what went wrong before anything was compared, and what watching cost."""
    for record in records:
        if record.failure is not None:
            words = record.failure.message
            yield f"{name_of(record)}: {record.failure.outcome}. {words}"
            continue
        for check in found.checks[record.key]:
            untold = not check.outcome.passed and check.first is None
            if untold or check.outcome is Outcome.GAP:
                which = f"{name_of(record)}, {check.what}"
                yield f"{which}: {check.outcome}. {check.reason}"
        if told := all_words(record):
            yield f"{name_of(record)}: {'; '.join(told)}"
        missing = (record.coverage or {}).get("missing", ())
        if missing and coverage_share(record) < 1.0:
            yield f"{name_of(record)}: not compared: {few(list(missing), 6)}"
    yield from contract_notes(records)
    watched = [
        max(record.observer_max_abs.values())
        for record in records
        if record.observer_max_abs
    ]
    if watched:
        most = f"the outputs by at most {max(watched):.1e}"
        yield f"Watching changed {most if max(watched) else 'no output'}."
