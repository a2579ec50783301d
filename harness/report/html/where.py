"""Where a run's time goes: operators by the model's own modules, a bar a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.core.text import few
from harness.report.html.charts import LAYOUT, PALETTE, Chart, plain
from harness.report.html.found import Found, Section
from harness.report.html.table import Column, Table, Words, short

MOST = 11
"""Modules with a colour of their own; the others share the last one."""

_REST = "all others"
_KINDS = 3

Case = Mapping[str, Any]
"""A case of the report's `where`."""


@dataclass(frozen=True, kw_only=True)
class Where(Section):
    """A component's modules, and what each takes in each deployed file.

    Attributes:
        chart: A bar a case.
        table: Every module of every case.

    """

    template: ClassVar[str] = "where.html"

    chart: Chart
    table: Table


def wheres(found: Found) -> Iterator[Where]:
    """Yield a component after the other, of those whose operators were timed."""
    of: dict[str, list[Case]] = {}
    for case in found.about.get("where") or ():
        of.setdefault(case["case"].partition("/")[0], []).append(case)
    for number, (subject, cases) in enumerate(of.items()):
        yield _where(f"where-{number}", subject, cases)


def _where(ident: str, subject: str, cases: Sequence[Case]) -> Where:
    took: dict[str, float] = {}
    for case in cases:
        for place in case["places"]:
            took[place["module"]] = took.get(place["module"], 0.0) + place["ms"]
    slowest = sorted(took, key=lambda module: -took[module])
    share = took[slowest[0]] / sum(took.values()) if sum(took.values()) else 0.0
    return Where(
        id=ident,
        title=f"{subject}: where the time goes",
        gist=f"most in {slowest[0]}, {share:.0%}",
        chart=Chart(
            id=f"{ident}-chart",
            figure=_figure(cases, slowest),
            alt=f"What the modules of {subject} take in each deployed file; most goes "
            f"to {', '.join(slowest[:3])}.",
            height=130 + 40 * len(cases),
        ),
        table=_table(f"{ident}-table", subject, cases),
    )


def _figure(cases: Sequence[Case], slowest: Sequence[str]) -> dict[str, Any]:
    from plotly import graph_objects as go

    named = slowest[:MOST]
    figure = go.Figure()
    for at, module in enumerate((*named, _REST)):
        places = [_of(case, module, named) for case in cases]
        if not any(ms for ms, _ in places):
            continue
        figure.add_trace(
            go.Bar(
                y=[_way(case) for case in cases],
                x=[short(ms) for ms, _ in places],
                name=module,
                orientation="h",
                marker={"color": PALETTE[at]},
                hovertext=[words for _, words in places],
                hovertemplate="<b>%{fullData.name}</b><br>%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(**LAYOUT, barmode="stack", bargap=0.35)
    figure.update_xaxes(title="in operators, ms")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return plain(figure)


def _of(case: Case, module: str, named: Sequence[str]) -> tuple[float, str]:
    """Return what a module takes in a case, and that in words."""
    own = [
        place
        for place in case["places"]
        if (place["module"] if place["module"] in named else _REST) == module
    ]
    took = sum(place["ms"] for place in own)
    kinds = list(dict.fromkeys(kind for place in own for kind in place["kinds"]))
    whole = sum(place["ms"] for place in case["places"]) or 1.0
    return took, f"{took:.3g} ms, {took / whole:.1%}<br>{few(kinds, _KINDS)}"


def _table(ident: str, subject: str, cases: Sequence[Case]) -> Table:
    ways, modules, kinds = Words(), Words(), Words()
    rows = []
    for case in cases:
        whole = sum(place["ms"] for place in case["places"]) or 1.0
        rows += [
            [
                ways.at(_way(case)),
                modules.at(place["module"]),
                short(place["ms"]),
                short(place["ms"] / whole),
                place["operators"],
                kinds.at(few(place["kinds"], _KINDS)),
            ]
            for place in case["places"]
        ]
    return Table(
        id=ident,
        caption=f"Modules of {subject} by time",
        unit="module",
        columns=(
            Column(title="way", words=ways.all),
            Column(title="module", words=modules.all),
            Column(title="ms", kind="number", hint="all of its operators"),
            Column(title="share", kind="percent", hint="of the file's operators"),
            Column(title="operators", kind="number", minor=True),
            Column(title="slowest kinds", words=kinds.all, minor=True),
        ),
        rows=rows,
        sort=2,
    )


def _way(case: Case) -> str:
    name: str = case["case"]
    return name.partition("/")[2]
