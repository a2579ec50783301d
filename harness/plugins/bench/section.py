"""Error and speed of each way to run a component or pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from harness.core.comparison import Comparison
from harness.core.end_to_end import IMAGE
from harness.core.record import OUTPUTS, CaseRecord
from harness.core.table import Column, ReportTable
from harness.core.text import count
from harness.plugins.page.charts import LAYOUT, LEAST, PALETTE, Chart, plain
from harness.plugins.page.section import Section
from harness.report.run_facts import RunFacts
from harness.report.times import disturbed_words, quartiles

_LATENCY = "latency_ms"
_MEBI = 2**20
_EAGER = "pytorch/eager"
_POINTS = (
    "A point is a way, and hovering says which; the line through it is the middle half "
    "of its runs, host memory to host memory. PyTorch, which has no error, is at the "
    "foot."
)


class Way(NamedTuple):
    """One way to run a component or pipeline.

    Attributes:
        floors: Largest error of its outputs, in noise floors; 0 for the reference,
            None if not compared.
        about: The report's entry about its time.

    """

    name: str
    floors: float | None
    about: Mapping[str, Any]

    @property
    def quartiles_ms(self) -> tuple[float, float, float]:
        """The median run in ms, between the ends of the middle half."""
        return quartiles(self.about["runs"])

    @property
    def size_mb(self) -> float | None:
        """Size of its file in MiB; None for PyTorch's own pipeline."""
        return self.about.get("size_bytes", 0) / _MEBI or None

    @property
    def costs(self) -> tuple[float, ...]:
        """Error, time, size and memory; an unknown error or size is infinite."""
        error = math.inf if self.floors is None else self.floors
        size = self.size_mb or math.inf
        return error, self.quartiles_ms[1], size, self.about.get("memory_bytes", 0)


def speeds(found: RunFacts) -> Iterator[Section]:
    """Yield a section for each component or pipeline that was timed and compared.

    It has the ways to run it, and says which ways no other beats.
    """
    timed: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in found.about.get("benchmarks") or ():
        if entry["metric"] == _LATENCY:
            # Times of several machines are not put beside one another.
            key = entry["case"].partition("/")[0], entry.get("node", "")
            timed.setdefault(key, []).append(entry)
    records = {record.case: record for record in found.records}
    for number, ((subject, node), entries) in enumerate(timed.items()):
        ways = [_way(entry, records.get(entry["case"])) for entry in entries]
        if any(way.floors for way in ways):
            yield _speed(f"speed-{number}", subject, node, ways)


def front(ways: Sequence[Way]) -> list[Way]:
    """Return the ways that no other way matches in every cost and beats in one.

    A way whose error is not known or not finite is left out, however fast it is.
    """
    return [
        way
        for way in ways
        if way.floors is not None
        and math.isfinite(way.floors)
        and not any(
            other.costs != way.costs
            and all(b <= a for a, b in zip(way.costs, other.costs, strict=True))
            for other in ways
        )
    ]


def _way(entry: Mapping[str, Any], record: CaseRecord | None) -> Way:
    name = entry["case"].partition("/")[2]
    floors = 0.0 if name == _EAGER else None
    if record is not None and record.failure is None:
        floors = _loudest(
            row.comparison for row in record.rows if row.what in {OUTPUTS, IMAGE}
        )
    return Way(name, floors, entry)


def _loudest(compared: Iterable[Comparison]) -> float | None:
    """Return the largest error in floors; one that is not finite is the largest."""
    known = [
        math.inf if one.nonfinite_mismatched or math.isnan(multiple) else multiple
        for one in compared
        if (multiple := one.floor_multiple) is not None
    ]
    return max(known, default=None)


def _speed(ident: str, subject: str, node: str, ways: Sequence[Way]) -> Section:
    best = [way.name for way in front(ways)]
    threads = sorted({way.about["threads"] for way in ways if "threads" in way.about})
    used = " or ".join(count(number, "thread") for number in threads)
    disturbed = disturbed_words(way.about.get("withheld") for way in ways)
    return Section(
        id=ident,
        title=f"{subject}: error and speed" + (f" on {node}" if node else ""),
        gist=_gist(ways, best),
        notes=[
            _POINTS,
            *([f"Each had {used}."] if used else []),
            *([f"{disturbed[:1].upper()}{disturbed[1:]}."] if disturbed else []),
        ],
        chart=Chart(
            id=f"{ident}-chart",
            figure=_figure(ways),
            alt=f"Error of {subject} against its median latency. Nothing beats these "
            f"in error, time, size and memory: {', '.join(best)}.",
        ),
        table=_table(f"{ident}-table", subject, ways, best),
    )


def _gist(ways: Sequence[Way], best: Sequence[str]) -> str:
    """Return the way to choose for time, and the way to choose for size."""
    latency, fastest = min((way.quartiles_ms[1], way.name) for way in ways)
    words = [f"fastest {fastest}, {latency:.3g} ms"]
    if sizes := [(way.size_mb, way.name) for way in ways if way.size_mb]:
        size, smallest = min(sizes)
        words.append(f"smallest {smallest}, {size:.2g} MB")
    words.append(f"{len(best)} of {count(len(ways), 'way')} on the front")
    return " · ".join(words)


def _figure(ways: Sequence[Way]) -> dict[str, Any]:
    """Return a figure of errors over times, with the middle half of each way's runs."""
    from plotly import graph_objects as go

    groups: dict[str, list[Way]] = {}
    for way in ways:
        if way.floors is not None and math.isfinite(way.floors):
            groups.setdefault(way.name.partition("/")[0], []).append(way)
    figure = go.Figure()
    for (runtime, own), colour in zip(groups.items(), PALETTE, strict=False):
        spreads = [way.quartiles_ms for way in own]
        figure.add_scatter(
            x=[middle for _, middle, _ in spreads],
            y=[max(way.floors or 0.0, LEAST) for way in own],
            error_x={
                "symmetric": False,
                "array": [high - middle for _, middle, high in spreads],
                "arrayminus": [middle - low for low, middle, _ in spreads],
                "thickness": 1.5,
            },
            mode="markers",
            name=runtime,
            marker={"size": 11, "color": colour},
            text=[way.name for way in own],
            hovertemplate="%{text}<br>%{x:.3g} ms, %{y:.3g} floors<extra></extra>",
        )
    figure.update_layout(**LAYOUT)
    figure.update_xaxes(title="a run, ms", type="log")
    figure.update_yaxes(title="error, floors", type="log")
    return plain(figure)


def _table(
    ident: str, subject: str, ways: Sequence[Way], best: Sequence[str]
) -> ReportTable:
    eager = {way.name: way.quartiles_ms[1] for way in ways}.get(_EAGER)

    def numbers(
        title: str, hint: str, cells: Iterable[float | None], *, minor: bool = False
    ) -> Column:
        return Column(title, list(cells), "number", hint, minor=minor)

    def noted(title: str, hint: str, key: str) -> Column:
        return numbers(title, hint, (way.about.get(key) for way in ways), minor=True)

    return ReportTable(
        id=ident,
        caption=f"Ways to run {subject}",
        unit="way",
        columns=(
            Column("way", [way.name for way in ways]),
            numbers("floors", "worst output or picture", [way.floors for way in ways]),
            numbers("ms", "median run", [way.quartiles_ms[1] for way in ways]),
            numbers(
                "× eager",
                "median beside PyTorch's",
                [way.quartiles_ms[1] / eager if eager else None for way in ways],
            ),
            numbers(
                "file MB", "of PyTorch, its weights", [way.size_mb for way in ways]
            ),
            numbers(
                "memory MB",
                "added to the process",
                [way.about.get("memory_bytes", 0) / _MEBI for way in ways],
            ),
            noted("load ms", "from nothing to a loaded model", "load_ms"),
            noted("first ms", "the first run, with shape inference", "first_run_ms"),
            noted("cores", "really at work", "cores"),
            Column(
                "front",
                ["front" if w.name in best else _why_not(w) for w in ways],
                hint="nothing beats it in all",
            ),
        ),
    )


def _why_not(way: Way) -> str:
    if way.floors is None:
        return "not compared"
    return "beaten" if math.isfinite(way.floors) else "not finite"
