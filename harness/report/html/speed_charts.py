"""Charts of what was timed: error against each cost, and how long runs take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from harness.core.case import REFERENCE
from harness.core.pipeline import MIXED
from harness.core.runtime import runtimes
from harness.report.html.charts import LAYOUT, LEAST, PALETTE, plain
from harness.report.html.ways import Way, stairs

_BUBBLE = 44.0
"""Pixels across of the largest file."""

_SMALL = 9.0
_GREY = PALETTE[10]
_NAME_WIDE, _NAME_HIGH = 0.17, 0.06
"""Parts of a chart that a name takes."""

_COSTS: Final[Mapping[str, tuple[str, Callable[[Way], float | None]]]] = (
    MappingProxyType(
        {
            "time": ("median run, ms", lambda way: way.latency_ms),
            "size": ("file, MB", lambda way: way.size_mb),
            "memory": ("memory added to the process, MB", lambda way: way.memory_mb),
        }
    )
)
"""What error is drawn against: the axis, and a way's place on it."""


def pareto_views(
    ways: Sequence[Way], best: Sequence[Way]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a figure of errors against times, and what changes for the other costs.

    A bubble is a way, as large as its file; those of the front have their full colour.
    The line joins what nothing beats in the error and the one cost that is drawn.
    """
    from plotly import graph_objects as go

    drawn = [
        way for way in ways if way.floors is not None and math.isfinite(way.floors)
    ]
    groups = {
        name: own
        for name in (REFERENCE, *runtimes(), MIXED)
        if (own := _of(drawn, name))
    }
    views = {name: _view(list(groups.values()), name) for name in _COSTS}
    first = views["time"]
    largest = max((way.size_mb or 0.0 for way in drawn), default=0.0) or 1.0
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=first["x"][0],
            y=first["y"][0],
            mode="lines",
            line={"shape": "hv", "width": 1.5, "dash": "dot", "color": _GREY},
            name="front",
            hoverinfo="skip",
        )
    )
    for at, (runtime, own) in enumerate(groups.items(), 1):
        full = [way in best for way in own]
        colour = _colour(runtime)
        figure.add_trace(
            go.Scatter(
                x=first["x"][at],
                y=first["y"][at],
                text=first["text"][at],
                mode="markers+text",
                textposition="top center",
                textfont={"size": 11},
                cliponaxis=False,
                name=runtime,
                marker={
                    "size": [_across(way, largest) for way in own],
                    "color": colour,
                    "opacity": [0.75 if one else 0.25 for one in full],
                    "line": {
                        "width": [2 if one else 0 for one in full],
                        "color": colour,
                    },
                },
                hovertext=[_said(way) for way in own],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(**LAYOUT)
    # A legend's bubble would be as large as the first of its kind.
    figure.update_layout(legend={"itemsizing": "constant"})
    figure.update_xaxes(title=first["title"], type="log")
    figure.update_yaxes(title="error, floors", type="log")
    return plain(figure), views


def _view(groups: Sequence[Sequence[Way]], name: str) -> dict[str, Any]:
    """Return the line's and the bubbles' places on one axis, and who is named there."""
    title, cost = _COSTS[name]
    places = [[(_log(cost(way)), _error(way)) for way in own] for own in groups]
    known = [(x, y) for own in places for x, y in own if x is not None]
    line = stairs(known)
    room = _Room(known)
    # What the line joins has its name first, whatever stands beside it.
    named = {place: room.take(*place) for place in line}
    text = [
        [
            way.name if x and (named.pop((x, y), False) or room.take(x, y)) else ""
            for way, (x, y) in zip(group, own, strict=True)
        ]
        for group, own in zip(groups, places, strict=True)
    ]
    return {
        "title": title,
        "x": [[x for x, _ in line], *([x for x, _ in own] for own in places)],
        "y": [[y for _, y in line], *([y for _, y in own] for own in places)],
        "text": [None, *text],
    }


class _Room:
    """Where names can still stand on a chart of log axes without hiding each other."""

    def __init__(self, places: Sequence[tuple[float, float]]) -> None:
        self._x, self._y = (
            [math.log10(place[axis]) for place in places] for axis in (0, 1)
        )
        self._taken: list[tuple[float, float]] = []

    def take(self, x: float, y: float) -> bool:
        """Return whether there is room, and take it."""
        at = _share(math.log10(x), self._x), _share(math.log10(y), self._y)
        free = all(
            abs(at[0] - other[0]) > _NAME_WIDE or abs(at[1] - other[1]) > _NAME_HIGH
            for other in self._taken
        )
        if free:
            self._taken.append(at)
        return free


def _share(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    return (value - low) / (high - low) if high > low else 0.0


def times_figure(ways: Sequence[Way]) -> dict[str, Any]:
    """Return the median of each way's runs with their middle half, a bar a way."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for runtime in (REFERENCE, *runtimes(), MIXED):
        own = _of(ways, runtime)
        if not own:
            continue
        figure.add_trace(
            go.Bar(
                y=[way.name for way in own],
                x=[_short(way.latency_ms) for way in own],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [_short(w.quartiles_ms[1] - w.latency_ms) for w in own],
                    "arrayminus": [
                        _short(w.latency_ms - w.quartiles_ms[0]) for w in own
                    ],
                    "color": _GREY,
                    "thickness": 1.5,
                    "width": 4,
                },
                orientation="h",
                name=runtime,
                marker={"color": _colour(runtime)},
                hovertemplate="%{y}: %{x} ms<extra></extra>",
            )
        )
    figure.update_layout(**LAYOUT, barmode="overlay", bargap=0.35)
    figure.update_xaxes(title="a run, ms", rangemode="tozero")
    figure.update_yaxes(
        autorange="reversed",
        automargin=True,
        categoryorder="array",
        categoryarray=[way.name for way in ways],
    )
    return plain(figure)


def _of(ways: Sequence[Way], runtime: str) -> list[Way]:
    return [way for way in ways if way.name.partition("/")[0] == runtime]


def _colour(runtime: str) -> str:
    return PALETTE[(REFERENCE, *runtimes(), MIXED).index(runtime)]


def _across(way: Way, largest: float) -> float:
    return max(_SMALL, _BUBBLE * math.sqrt((way.size_mb or 0.0) / largest))


def _said(way: Way) -> str:
    size = "no file" if way.size_mb is None else f"{way.size_mb:.3g} MB of file"
    return (
        f"<b>{way.name}</b><br>{way.latency_ms:.3g} ms · {way.floors:.3g} floors"
        f"<br>{size} · {way.memory_mb:.3g} MB of memory"
    )


def _error(way: Way) -> float:
    return max(_short(way.floors or 0.0), LEAST)


def _log(value: float | None) -> float | None:
    """Return a place on a log axis; what is nothing has none there."""
    return _short(value) if value is not None and value > 0.0 else None


def _short(value: float) -> float:
    return float(f"{value:.4g}")
