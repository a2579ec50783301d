"""Parity and speed in one picture: error against latency, size and memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.report.html.charts import LEAST, PALETTE, Chart
from harness.report.html.found import Found, Section
from harness.report.html.table import Column, Table, Words, short
from harness.report.record import OUTPUTS, CaseRecord
from harness.report.text import count, few

METRIC = "latency_ms"
_MEBI = 2**20
_EAGER = "pytorch/eager"
_BUBBLE = 44.0
"""Pixels across of the largest file."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to run a component.

    Attributes:
        name: Runtime and variant.
        floors: Largest error of its outputs; 0 of the reference, None if not compared.
        latency_ms: Median run.
        size_mb: Of its file.
        memory_mb: What loading and running it adds to a process.

    """

    name: str
    floors: float | None
    latency_ms: float
    size_mb: float
    memory_mb: float

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """What one wants little of."""
        error = math.inf if self.floors is None else self.floors
        return error, self.latency_ms, self.size_mb, self.memory_mb


@dataclass(frozen=True, kw_only=True)
class Speed(Section):
    """A component's ways to run, those marked that nothing else beats in all."""

    template: ClassVar[str] = "speed.html"

    chart: Chart
    table: Table


def speeds(found: Found) -> Iterator[Speed]:
    """Yield a component after the other, of those that were timed and compared."""
    timed: dict[str, list[Mapping[str, Any]]] = {}
    for entry in found.about.get("benchmarks") or ():
        if entry["metric"] == METRIC:
            timed.setdefault(entry["case"].partition("/")[0], []).append(entry)
    records = {record.case: record for record in found.records}
    for number, (component, entries) in enumerate(timed.items()):
        choices = [_choice(entry, records.get(entry["case"])) for entry in entries]
        if any(choice.floors for choice in choices):
            yield _speed(f"speed-{number}", component, choices)


def front(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices that no other equals in everything and beats in something."""
    return [
        one
        for one in choices
        if one.floors is not None
        and not any(
            other.costs != one.costs
            and all(b <= a for a, b in zip(one.costs, other.costs, strict=True))
            for other in choices
        )
    ]


def _choice(entry: Mapping[str, Any], record: CaseRecord | None) -> Choice:
    name = entry["case"].partition("/")[2]
    floors = 0.0 if name == _EAGER else None
    if record is not None and record.failure is None:
        errors = [
            row.comparison.floor_multiple for row in record.rows if row.what == OUTPUTS
        ]
        known = [error for error in errors if error is not None]
        floors = max(known) if known else None
    return Choice(
        name=name,
        floors=floors,
        latency_ms=statistics.median(map(float, entry["runs"])),
        size_mb=entry.get("size_bytes", 0) / _MEBI,
        memory_mb=entry.get("memory_bytes", 0) / _MEBI,
    )


def _speed(ident: str, component: str, choices: Sequence[Choice]) -> Speed:
    best = front(choices)
    names = [choice.name for choice in best]
    words, marks = Words(), Words()
    rows = [
        [
            words.at(one.name),
            marks.at("front" if one in best else "beaten"),
            short(one.floors),
            short(one.latency_ms),
            short(one.size_mb),
            short(one.memory_mb),
        ]
        for one in choices
    ]
    return Speed(
        id=ident,
        title=f"{component}: error and speed",
        gist=f"{len(best)} of {count(len(choices), 'way')} on the front: {few(names)}",
        chart=Chart(
            id=f"{ident}-chart",
            figure=pareto_figure(choices, best),
            alt=f"Error of {component} against its median latency, as large as the "
            f"file. Nothing beats these in error, time, size and memory: "
            f"{', '.join(names)}.",
        ),
        table=Table(
            id=f"{ident}-table",
            caption=f"Ways to run {component}",
            unit="way",
            columns=(
                Column(title="way", words=words.all),
                Column(title="front", words=marks.all, hint="nothing beats it in all"),
                Column(title="floors", kind="number", hint="worst output"),
                Column(title="ms", kind="number", hint="median run"),
                Column(title="file MB", kind="number"),
                Column(title="memory MB", kind="number", hint="added to the process"),
            ),
            rows=rows,
        ),
    )


def pareto_figure(choices: Sequence[Choice], best: Sequence[Choice]) -> dict[str, Any]:
    """Return a bubble a choice; those of the front are full and have an outline."""
    from plotly import graph_objects as go

    largest = max(choice.size_mb for choice in choices) or 1.0
    figure = go.Figure()
    for full in (True, False):
        shown = [
            one
            for one in choices
            if (one in best) == full
            and one.floors is not None
            and math.isfinite(one.floors)
        ]
        figure.add_trace(
            go.Scatter(
                x=[float(f"{one.latency_ms:.4g}") for one in shown],
                y=[max(float(f"{one.floors:.4g}"), LEAST) for one in shown],
                text=[one.name for one in shown],
                customdata=None,
                mode="markers+text",
                textposition="top center",
                name="on the front" if full else "beaten in everything",
                marker={
                    "size": [
                        max(9.0, _BUBBLE * math.sqrt(one.size_mb / largest))
                        for one in shown
                    ],
                    "color": PALETTE[0] if full else PALETTE[10],
                    "opacity": 0.8 if full else 0.35,
                    "line": {"width": 2 if full else 0, "color": PALETTE[1]},
                },
                hovertemplate="%{text}: %{x} ms, %{y} floors<extra></extra>",
            )
        )
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 56, "r": 12, "t": 12, "b": 52},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        hovermode="closest",
    )
    figure.update_xaxes(title="median run, ms", type="log")
    figure.update_yaxes(title="error, floors", type="log")
    plain = figure.to_plotly_json()
    return {"data": list(plain["data"]), "layout": plain["layout"]}
