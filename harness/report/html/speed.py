"""Parity and speed in one picture: error against latency, size and memory."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.core.comparison import Comparison
from harness.core.pipeline import IMAGE
from harness.core.record import OUTPUTS, CaseRecord
from harness.core.text import count
from harness.report.html.charts import Chart
from harness.report.html.found import Found, Section
from harness.report.html.speed_charts import pareto_views, times_figure
from harness.report.html.table import Column, Table, Words, short
from harness.report.html.ways import Way, front
from harness.report.runs.cpu_load import AtWork, at_work_words

_METRIC = re.compile(r"latency(?:_at_(\d+)_threads)?_ms")
_MEBI = 2**20
_EAGER = "pytorch/eager"
_COMPILED = "pytorch/compile"


@dataclass(frozen=True, kw_only=True)
class Speed(Section):
    """A component's or pipeline's ways to run, and which nothing else beats.

    Attributes:
        chart: Error against what it costs.
        times: What each run took.
        table: Every way.
        threads: How many threads each had, in words.
        at_work: Where they were not at work, or not alone, in words.

    """

    template: ClassVar[str] = "speed.html"

    chart: Chart
    times: Chart
    table: Table
    threads: str
    at_work: str


def speeds(found: Found) -> Iterator[Speed]:
    """Yield a component or pipeline after the other, of those timed and compared."""
    timed: dict[str, list[Mapping[str, Any]]] = {}
    for entry in found.about.get("benchmarks") or ():
        if at := _METRIC.fullmatch(entry["metric"]):
            name = entry["case"].partition("/")[0]
            # Another number of threads than the suite's is another question.
            name += f" at {count(int(at[1]), 'thread')}" if at[1] else ""
            timed.setdefault(name, []).append(entry)
    records = {record.case: record for record in found.records}
    for number, (subject, entries) in enumerate(timed.items()):
        ways = [_way(entry, records.get(entry["case"])) for entry in entries]
        if any(way.floors for way in ways):
            yield _speed(f"speed-{number}", subject, ways, entries)


def _way(entry: Mapping[str, Any], record: CaseRecord | None) -> Way:
    name = entry["case"].partition("/")[2]
    floors = 0.0 if name == _EAGER else None
    if record is not None and record.failure is None:
        floors = _loudest(
            row.comparison for row in record.rows if row.what in {OUTPUTS, IMAGE}
        )
    runs = sorted(map(float, entry["runs"]))
    low, middle, high = (
        statistics.quantiles(runs, n=4, method="inclusive")
        if len(runs) > 1
        else runs * 3
    )
    return Way(
        name=name,
        floors=floors,
        latency_ms=middle,
        quartiles_ms=(low, high),
        load_ms=entry.get("load_ms"),
        first_ms=entry.get("first_run_ms"),
        # PyTorch's own pipeline has no file.
        size_mb=entry.get("size_bytes", 0) / _MEBI or None,
        memory_mb=entry.get("memory_bytes", 0) / _MEBI,
        cores=entry.get("cores"),
    )


def _speed(
    ident: str,
    subject: str,
    ways: Sequence[Way],
    entries: Sequence[Mapping[str, Any]],
) -> Speed:
    best = front(ways)
    names = [way.name for way in best]
    figure, views = pareto_views(ways, best)
    timed = [entry for entry in entries if "threads" in entry]
    at_work = [
        AtWork(
            threads=entry["threads"],
            cores=entry["cores"],
            withheld=entry.get("withheld"),
        )
        for entry in timed
        if "cores" in entry
    ]
    return Speed(
        id=ident,
        title=f"{subject}: error and speed",
        gist=_gist(ways, best),
        threads=" or ".join(
            count(threads, "thread")
            for threads in sorted({entry["threads"] for entry in timed})
        ),
        at_work=at_work_words(at_work),
        chart=Chart(
            id=f"{ident}-chart",
            figure=figure,
            views=views,
            alt=f"Error of {subject} against its median latency, as large as the "
            f"file. Nothing beats these in error, time, size and memory: "
            f"{', '.join(names)}.",
        ),
        times=Chart(
            id=f"{ident}-times",
            figure=times_figure(ways),
            alt=f"How long a run of {subject} takes: median and middle half of each "
            "way, beside PyTorch eager.",
            height=90 + 26 * len(ways),
        ),
        table=_table(f"{ident}-table", subject, ways, best),
    )


def _gist(ways: Sequence[Way], best: Sequence[Way]) -> str:
    """Return what one picks for time, and what for size."""
    fastest = min(ways, key=lambda way: way.latency_ms)
    words = [f"fastest {fastest.name}, {fastest.latency_ms:.3g} ms"]
    sizes = {way.name: way.size_mb for way in ways if way.size_mb}
    if sizes:
        smallest = min(sizes, key=sizes.__getitem__)
        words.append(f"smallest {smallest}, {sizes[smallest]:.2g} MB")
    words.append(f"{len(best)} of {count(len(ways), 'way')} on the front")
    return " · ".join(words)


def _table(ident: str, subject: str, ways: Sequence[Way], best: Sequence[Way]) -> Table:
    eager = next((way.latency_ms for way in ways if way.name == _EAGER), None)
    names, marks = Words(), Words()
    rows = [
        [
            names.at(way.name),
            short(way.floors),
            short(way.latency_ms),
            short(way.latency_ms / eager if eager else None),
            short(way.size_mb),
            short(way.memory_mb),
            short(way.load_ms),
            short(way.first_ms),
            short(way.cores),
            marks.at("front" if way in best else _why_not(way)),
        ]
        for way in ways
    ]
    return Table(
        id=ident,
        caption=f"Ways to run {subject}",
        unit="way",
        columns=(
            Column(title="way", words=names.all),
            Column(title="floors", kind="number", hint="worst output or picture"),
            Column(title="ms", kind="number", hint="median run"),
            Column(title="× eager", kind="number", hint="median beside PyTorch's"),
            Column(title="file MB", kind="number", hint="of PyTorch, its weights"),
            Column(title="memory MB", kind="number", hint="added to the process"),
            Column(
                title="load ms",
                kind="number",
                hint="from nothing to a loaded model",
                minor=True,
            ),
            Column(
                title="first ms",
                kind="number",
                hint="the first run, in which compilers work",
                minor=True,
            ),
            Column(title="cores", kind="number", hint="really at work", minor=True),
            Column(title="front", words=marks.all, hint="nothing beats it in all"),
        ),
        rows=rows,
    )


def _loudest(compared: Iterable[Comparison]) -> float | None:
    """Return the largest error in floors; one that is not finite is the largest."""
    known = [
        math.inf if one.nonfinite_mismatched or math.isnan(multiple) else multiple
        for one in compared
        if (multiple := one.floor_multiple) is not None
    ]
    return max(known, default=None)


def _why_not(way: Way) -> str:
    if way.floors is None:
        return "not compared"
    return "beaten" if math.isfinite(way.floors) else "not finite"
