"""Ways to run a component or pipeline, and their charts: error against each cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from harness.report.html.charts import LAYOUT, LEAST, PALETTE, plain

_GREY = PALETTE[10]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run a component or pipeline.

    Attributes:
        name: Runtime and variant.
        floors: Largest error of its outputs; 0 of the reference, None if not compared.
        latency_ms: Median run.
        quartiles_ms: Between which the middle half of the runs lies.
        size_mb: Size of its file; None where there is none.
        memory_mb: What loading and running it adds to a process.
        load_ms: From nothing to a loaded model; None if not known.
        first_ms: The first run; None if not known.
        cores: How many were at work; None if not known.

    """

    name: str
    floors: float | None
    latency_ms: float
    quartiles_ms: tuple[float, float]
    size_mb: float | None
    memory_mb: float
    load_ms: float | None = None
    first_ms: float | None = None
    cores: float | None = None

    @property
    def runtime(self) -> str:
        """The first part of its name."""
        return self.name.partition("/")[0]

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """What one wants little of; what is not known counts as much."""
        error = math.inf if self.floors is None else self.floors
        size = math.inf if self.size_mb is None else self.size_mb
        return error, self.latency_ms, size, self.memory_mb


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


def front(ways: Sequence[Way]) -> list[Way]:
    """Return the ways that no other equals in everything and beats in something.

    A way whose error is not known or not finite is none of them, however fast.
    """
    return [
        one
        for one in ways
        if one.floors is not None
        and math.isfinite(one.floors)
        and not any(
            other.costs != one.costs
            and all(b <= a for a, b in zip(one.costs, other.costs, strict=True))
            for other in ways
        )
    ]


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none beats in both numbers, from left to right.

    >>> stairs([(3.0, 1.0), (1.0, 9.0), (2.0, 9.5), (2.0, 4.0)])
    [(1.0, 9.0), (2.0, 4.0), (3.0, 1.0)]
    """
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not kept or y < kept[-1][1]:
            kept.append((x, y))
    return kept


def error_views(ways: Sequence[Way]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a figure of errors against times, and what changes for the other costs.

    A point is a way, and hovering says which. The line joins what nothing beats in the
    error and the one cost that is drawn.
    """
    from plotly import graph_objects as go

    drawn = [
        way for way in ways if way.floors is not None and math.isfinite(way.floors)
    ]
    groups, colours = _by_runtime(drawn), _colours(ways)
    views = {name: _view(list(groups.values()), name) for name in _COSTS}
    first = views["time"]
    figure = go.Figure()
    figure.add_scatter(
        x=first["x"][0],
        y=first["y"][0],
        mode="lines",
        line={"shape": "hv", "width": 1.5, "dash": "dot", "color": _GREY},
        name="front",
        hoverinfo="skip",
    )
    for at, (runtime, own) in enumerate(groups.items(), 1):
        figure.add_scatter(
            x=first["x"][at],
            y=first["y"][at],
            mode="markers",
            name=runtime,
            marker={"size": 11, "color": colours[runtime]},
            hovertext=[_said(way) for way in own],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_layout(**LAYOUT)
    figure.update_xaxes(title=first["title"], type="log")
    figure.update_yaxes(title="error, floors", type="log")
    return plain(figure), views


def _view(groups: Sequence[Sequence[Way]], name: str) -> dict[str, Any]:
    """Return the line's and the points' places on one axis."""
    title, cost = _COSTS[name]
    places = [[(_log(cost(way)), _error(way)) for way in own] for own in groups]
    line = stairs([(x, y) for own in places for x, y in own if x is not None])
    return {
        "title": title,
        "x": [[x for x, _ in line], *([x for x, _ in own] for own in places)],
        "y": [[y for _, y in line], *([y for _, y in own] for own in places)],
    }


def times_figure(ways: Sequence[Way]) -> dict[str, Any]:
    """Return the median of each way's runs with their middle half, a bar a way."""
    from plotly import graph_objects as go

    figure, colours = go.Figure(), _colours(ways)
    for runtime, own in _by_runtime(ways).items():
        spreads = [(way.latency_ms, *way.quartiles_ms) for way in own]
        figure.add_bar(
            y=[way.name for way in own],
            x=[_short(middle) for middle, _, _ in spreads],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [_short(high - middle) for middle, _, high in spreads],
                "arrayminus": [_short(middle - low) for middle, low, _ in spreads],
                "color": _GREY,
                "thickness": 1.5,
                "width": 4,
            },
            orientation="h",
            name=runtime,
            marker={"color": colours[runtime]},
            hovertemplate="%{y}: %{x} ms<extra></extra>",
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


def _by_runtime(ways: Sequence[Way]) -> dict[str, list[Way]]:
    groups: dict[str, list[Way]] = {}
    for way in ways:
        groups.setdefault(way.runtime, []).append(way)
    return groups


def _colours(ways: Sequence[Way]) -> dict[str, str]:
    """Return a colour for each runtime, the same in both charts."""
    return dict(zip(_by_runtime(ways), PALETTE, strict=False))


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
