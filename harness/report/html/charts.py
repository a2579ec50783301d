"""Every chart of the page, as a figure of plotly; the page's script adds its colours.

A figure names no colour of paper or text: those follow the reader's light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_POINTS = 1500
"""Points that a curve is drawn with; of more, the largest of each stretch is kept."""

LEAST = 0.1
"""Floors at the foot of a chart: what is less is drawn there."""

PALETTE = (
    *("#3b82f6", "#ea7317", "#14a38b", "#c04ad0", "#9a8700", "#e0457b"),
    *("#6d72e8", "#3f9b3f", "#0e9bc0", "#a8674a", "#7f8a99", "#d05a3c"),
)
"""Told apart on white and on black, and by most who are colour-blind."""

MOST_MARKERS = 400
"""Beyond, a curve is a line alone."""

INTERACTION = "interaction"
"""What no seat brings alone."""

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
"""Of every figure; the page's script adds its colours."""

_GREY = "#8b95a1"
_SPARK_POINTS = 150
_LIMIT = "#d64545"

_BROKEN = 10.0
"""How far above the largest number an error is drawn that is none."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure, and what it shows in words.

    Attributes:
        id: Of the element in the page.
        figure: As plotly's script takes it.
        alt: What it shows, for those who cannot see it.
        table: Table whose rows its points are, for what is said on hovering.
        height: In pixels.
        still: Whether it is a picture only, without hovering and zooming.
        views: Name to other places of its points, and the axis' title; the reader's
            choice.

    """

    id: str
    figure: Mapping[str, Any]
    alt: str
    table: str = ""
    height: int = 400
    still: bool = False
    views: Mapping[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Errors of one case.

    Attributes:
        case: Its name; its curves are shown and hidden together.
        x: Places in order of execution.
        y: Errors in floors; NaN or infinite where numbers could not be compared.
        rows: The table's row of each point.
        passed: Whether each is within its tolerance.
        shown: Whether it is drawn at first, or when the reader asks.
        dashed: Drawn in dots, and named by the case's other curve.
        colour: Of `PALETTE`; curves of one colour belong together.

    """

    case: str
    x: Sequence[int]
    y: Sequence[float]
    rows: Sequence[int] = ()
    passed: Sequence[bool] = ()
    shown: bool = True
    dashed: bool = False
    colour: int = 0


def depth_figure(
    curves: Sequence[Curve], limits: Mapping[str, float], *, x_title: str
) -> dict[str, Any]:
    """Return errors along the depth, log scale, with a line at each limit.

    Args:
        curves: One a case.
        limits: Name of a bound to its floors; one of 0 has no place on a log axis.
        x_title: What the places are.

    """
    from plotly import graph_objects as go

    limits = {name: floors for name, floors in limits.items() if floors > 0}
    top = _top(curves, limits)
    figure = go.Figure()
    for curve in curves:
        kept = _points(curve, MOST_POINTS)
        figure.add_trace(_line(go, curve, kept, top))
        wrong = [at for at in kept if curve.passed and not curve.passed[at]]
        if wrong:
            figure.add_trace(_wrong(go, curve, wrong, top))
    for name, floors in limits.items():
        figure.add_hline(y=floors, line={"dash": "dot", "width": 1.5, "color": _LIMIT})
        figure.add_annotation(
            text=f"{name}: {floors:g} floors",
            font={"size": 11, "color": _LIMIT},
            x=1,
            xref="paper",
            xanchor="right",
            y=math.log10(floors),  # of a log axis an annotation wants the power
            yanchor="bottom" if floors == max(limits.values()) else "top",
            showarrow=False,
        )
    figure.update_layout(**LAYOUT)
    figure.update_xaxes(title=x_title)
    # No range: plotly fits it to the curves that the reader lets it draw.
    figure.update_yaxes(title="error, floors", type="log", dtick=1)
    return plain(figure)


def spark_figure(
    curves: Sequence[Curve], limits: Mapping[str, float]
) -> dict[str, Any]:
    """Return the same in small: no axes, nothing to hover over."""
    from plotly import graph_objects as go

    top = _top(curves, limits)
    figure = go.Figure()
    for curve in curves:
        trace = _line(go, curve, _points(curve, _SPARK_POINTS), top)
        figure.add_trace(trace.update(mode="lines", customdata=None))
    if limits:
        line = {"dash": "dot", "width": 1, "color": _LIMIT}
        figure.add_hline(y=max(limits.values()), line=line)
    margin = {"l": 0, "r": 0, "t": 2, "b": 2}
    figure.update_layout(**{**LAYOUT, "margin": margin}, showlegend=False)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, type="log")
    return plain(figure)


def shares_figure(
    cases: Sequence[str], shares: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Return who brings a picture's error: a bar a case, a piece a seat.

    Args:
        cases: One bar each, from the top down.
        shares: Seat to its share of the error's power in each case.

    """
    from plotly import graph_objects as go

    figure = go.Figure()
    for at, (seat, values) in enumerate(shares.items()):
        figure.add_trace(
            go.Bar(
                y=list(cases),
                x=[_digits(value) for value in values],
                name=seat,
                orientation="h",
                marker={"color": _GREY if seat == INTERACTION else PALETTE[at]},
                hovertemplate="%{y}: %{x:.1%}",
            )
        )
    figure.update_layout(**{**LAYOUT, "hovermode": "closest"}, barmode="relative")
    figure.update_xaxes(title="share of the error's power", tickformat=".0%")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return plain(figure)


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


def _points(curve: Curve, most: int) -> list[int]:
    """Return which points to draw: equal values have no place on a log scale."""
    wrong = {at for at, passed in enumerate(curve.passed) if not passed}
    known = [at for at, y in enumerate(curve.y) if y != 0.0 or at in wrong]
    return [known[at] for at in thinned([curve.y[at] for at in known], most)]


def _line(go: Any, curve: Curve, kept: Sequence[int], top: float) -> Any:  # noqa: ANN401  # plotly's own
    return go.Scatter(
        **_at(curve, kept, top),
        name=curve.case,
        showlegend=not curve.dashed,
        mode="lines+markers" if len(kept) < MOST_MARKERS else "lines",
        line={
            "width": 1.5,
            "color": PALETTE[curve.colour % len(PALETTE)],
            "dash": "dot" if curve.dashed else "solid",
        },
        marker={"size": 4},
    )


def _wrong(go: Any, curve: Curve, wrong: Sequence[int], top: float) -> Any:  # noqa: ANN401  # plotly's own
    return go.Scatter(
        **_at(curve, wrong, top),
        name=f"{curve.case}, out of tolerance",
        showlegend=False,
        mode="markers",
        marker={"symbol": "x", "size": 8, "color": _LIMIT},
    )


def _at(curve: Curve, kept: Sequence[int], top: float) -> dict[str, Any]:
    """Return some points of a curve as plotly takes them."""
    return {
        "x": [curve.x[at] for at in kept],
        "y": [_digits(_drawn(curve.y[at], top)) for at in kept],
        "customdata": [curve.rows[at] for at in kept] if curve.rows else None,
        "legendgroup": curve.case,
        "visible": True if curve.shown else "legendonly",
    }


def _top(curves: Sequence[Curve], limits: Mapping[str, float]) -> float:
    """Return where an error is drawn that is no number: above all that are."""
    finite = [y for curve in curves for y in curve.y if math.isfinite(y)]
    return max([1.0, *finite, *limits.values()]) * _BROKEN


def _drawn(value: float, top: float) -> float:
    return max(value, LEAST) if math.isfinite(value) else top


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def plain(figure: Any) -> dict[str, Any]:  # noqa: ANN401  # plotly's own
    """Return a checked figure as plain values."""
    plain: dict[str, Any] = figure.to_plotly_json()
    return {"data": list(plain["data"]), "layout": plain["layout"]}
