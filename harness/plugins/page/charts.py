"""Every chart of the page, as a plotly figure; the page's script adds its colours.

A figure sets no colour of paper or text: these follow the reader's light or dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.plugins.page.table import short

MOST_POINTS = 1500
"""Largest number of points of a curve; of more, each stretch keeps its largest one."""

LEAST = 0.1
"""Error in floors at the bottom of a chart: a smaller error is drawn there."""

_LEAST_SHARE = 0.001
"""Share of a limit at the bottom of a chart."""

PALETTE = (
    *("#3b82f6", "#ea7317", "#14a38b", "#c04ad0", "#9a8700", "#e0457b"),
    *("#6d72e8", "#3f9b3f", "#0e9bc0", "#a8674a", "#7f8a99", "#d05a3c"),
)
"""Colours that differ on white and on black, and for most colour-blind readers."""

MOST_MARKERS = 400
"""Number of points above which a curve is a line without markers."""

LAYOUT: Mapping[str, Any] = {
    "template": "none",
    "margin": {"l": 56, "r": 12, "t": 12, "b": 52},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "maxheight": 0.25},
    "hovermode": "closest",
    "hoverlabel": {"align": "left"},
    "dragmode": "zoom",
}
"""Layout of every figure; the page's script adds its colours."""

_LIMIT = "#d64545"

_BROKEN = 10.0
"""Factor above the largest number at which an error that is no number is drawn."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure, and its description for readers who cannot see it.

    Attributes:
        figure: Data and layout for plotly's script.
        table: Id of the table whose rows are the points; hovering shows the row.

    """

    id: str
    figure: Mapping[str, Any]
    alt: str
    table: str = ""
    height: int = 400


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Errors of one case.

    Attributes:
        case: Name of the case; its curves are shown and hidden together.
        x: Places in order of execution.
        y: Errors as shares of each value's own limit; infinite where numbers could not
            be compared.
        limits: The limit of each value in floors; None where another metric bounds it.
        rows: The table's row of each point.
        passed: Whether each value is within its tolerance.
        shown: Whether the curve is drawn at first, or only when the reader chooses it.
        dashed: Whether it is drawn in dots and left out of the legend.
        colour: Index into `PALETTE`; curves of one colour belong together.

    """

    case: str
    x: Sequence[int]
    y: Sequence[float]
    limits: Sequence[float | None] = ()
    rows: Sequence[int] = ()
    passed: Sequence[bool] = ()
    shown: bool = True
    dashed: bool = False
    colour: int = 0


def depth_figure(curves: Sequence[Curve], *, x_title: str) -> dict[str, Any]:
    """Return a figure of errors along the depth, as shares of each value's own limit.

    The limit is one line for all curves. In floors, the page's script draws for each
    curve its own limits, in the curve's colour.
    """
    from plotly import graph_objects as go

    finite = [y for curve in curves for y in curve.y if math.isfinite(y)]
    top = max([1.0, *finite]) * _BROKEN
    figure = go.Figure()
    for curve in curves:
        wrong = {at for at, passed in enumerate(curve.passed) if not passed}
        # Equal values have no place on a log scale.
        known = [at for at, y in enumerate(curve.y) if y > 0.0 or at in wrong]
        kept = [known[at] for at in thinned([curve.y[at] for at in known], MOST_POINTS)]
        colour = PALETTE[curve.colour % len(PALETTE)]
        figure.add_trace(
            go.Scatter(
                **_points(curve, kept, top),
                name=curve.case,
                showlegend=not curve.dashed,
                mode="lines+markers" if len(kept) < MOST_MARKERS else "lines",
                line={
                    "width": 1.5,
                    "color": colour,
                    "dash": "dot" if curve.dashed else "solid",
                },
                marker={"size": 4},
            )
        )
        bounds = [curve.limits[at] for at in kept] if curve.limits else []
        if any(bounds):
            figure.add_trace(
                go.Scatter(
                    x=[curve.x[at] for at in kept],
                    y=[None] * len(kept),
                    meta={"limits": bounds},
                    legendgroup=curve.case,
                    visible=True if curve.shown else "legendonly",
                    name=f"{curve.case}, its limit",
                    showlegend=False,
                    hoverinfo="name+y",
                    mode="lines",
                    line={"width": 1.2, "color": colour, "dash": "dash", "shape": "hv"},
                )
            )
        if crosses := [at for at in kept if at in wrong]:
            figure.add_trace(
                go.Scatter(
                    **_points(curve, crosses, top),
                    name=f"{curve.case}, out of tolerance",
                    showlegend=False,
                    mode="markers",
                    marker={"symbol": "x", "size": 8, "color": _LIMIT},
                )
            )
    limit_line(figure, "the limit of each value")
    figure.update_layout(**LAYOUT)
    figure.update_xaxes(title=x_title)
    # No range is set: plotly fits it to the curves that the reader shows.
    figure.update_yaxes(title="error, share of its limit", type="log", dtick=1)
    return plain(figure)


def limit_line(figure: Any, text: str) -> None:  # noqa: ANN401  # plotly's own
    """Draw the line of a whole limit, and a text above its end."""
    figure.add_hline(y=1.0, line={"dash": "dot", "width": 1.5, "color": _LIMIT})
    figure.add_annotation(
        text=text,
        font={"size": 11, "color": _LIMIT},
        x=1,
        xref="paper",
        xanchor="right",
        y=0.0,  # a log axis places an annotation by its exponent
        yanchor="bottom",
        showarrow=False,
    )


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Return which points to draw: the largest of each stretch, all if they are few.

    >>> thinned([1.0, 5.0, 2.0, 3.0], 2)
    [1, 3]
    """
    step = math.ceil(len(values) / most)
    return [
        max(range(at, min(at + step, len(values))), key=values.__getitem__)
        for at in range(0, len(values), max(1, step))
    ]


def _points(curve: Curve, kept: Sequence[int], top: float) -> dict[str, Any]:
    """Return some points of a curve; an error that is no number is drawn at the top."""
    y = [curve.y[at] for at in kept]
    return {
        "x": [curve.x[at] for at in kept],
        "y": [short(max(v, _LEAST_SHARE) if math.isfinite(v) else top) for v in y],
        "customdata": [curve.rows[at] for at in kept] if curve.rows else None,
        "legendgroup": curve.case,
        "visible": True if curve.shown else "legendonly",
    }


def plain(figure: Any) -> dict[str, Any]:  # noqa: ANN401  # plotly's own
    """Return a checked figure as plain values."""
    plain: dict[str, Any] = figure.to_plotly_json()
    return {"data": list(plain["data"]), "layout": plain["layout"]}
