"""The values of one case in order of execution, as text lines and as node data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from harness.core.outcome import Outcome
from harness.core.record import ISOLATED, OUTPUTS, CaseRecord
from harness.core.text import (
    WIDTH,
    Line,
    count,
    cut,
    floors_explained,
    in_floors,
    number_of_floors,
    operator,
    wrapped,
)
from harness.judge.case import CaseVerdict
from harness.judge.contract import contract_lines
from harness.judge.graph_check import graph_notes
from harness.judge.pipeline import pipeline_lines
from harness.judge.rewritten_values import how_rewritten
from harness.judge.value import JudgedRow
from harness.measure.metrics import TUNED, Metric

_PLOT = " ▁▂▃▄▅▆▇█"
_CURVE = 72
_ALWAYS = ("atol", "floors", "sqnr_db")
"""Bounds with a column in every listing; atol's column is the largest error."""

_LEAST_TOP = 16.0
"""Error in floors at the top of the plot, unless an error is larger."""
_COLOURS = ((0.5, "#b7e1c0"), (1.0, "#ffe08a"), (math.inf, "#f2a29b"))
"""Shares of the tolerance that a value uses, each with a node's colour up to it."""


@floors_explained
def layer_lines(
    record: CaseRecord, verdicts: Sequence[CaseVerdict], *, sample: str = ""
) -> Iterator[Line]:
    """Yield a case's values, the worst over samples or those of one sample.

    Args:
        record: The case.
        verdicts: Verdicts of its checks.
        sample: Name of the one sample to list; every sample if empty.

    """
    ordered = worst_rows(verdicts, sample)
    if not ordered:
        why = record.failure.message if record.failure else "its record has none"
        yield Line(text=f"{record.case}: no values were compared: {why}", tone="bad")
        return
    out = sum(not judged.verdict.passed for judged in ordered)
    result = f"{out:,} out of tolerance" if out else "all within tolerance"
    if others := sum(bool(how_rewritten(judged)) for judged in ordered):
        result += f" but {count(others, 'other value')}"
    values = f"{count(len(ordered), 'value')} in order of execution"
    tone = "bad" if out else "good"
    yield Line(text=f"{record.case}: {values}, {result}", tone=tone)
    if record.node:
        yield Line(text=f"  ran on {record.node}", tone="quiet")
    for verdict in verdicts:
        # No value's line shows gaps, or that too little was compared.
        by_rows = verdict.first is not None and verdict.outcome is verdict.found
        if verdict.outcome is not Outcome.WITHIN and not by_rows:
            text = f"{verdict.what}: {verdict.outcome}: {verdict.reason}"
            tone = "quiet" if verdict.outcome.passed else "bad"
            yield from wrapped(text, indent="  ", tone=tone)
    errors = (judged.floors for judged in ordered)
    top = max([_LEAST_TOP, *filter(math.isfinite, errors)])
    if record.pipeline:
        yield from pipeline_lines(record)
    else:
        which = f"sample {sample}" if sample else "worst of all samples"
        scale = f"log scale from 1 to {in_floors(top)}"
        yield Line(text=f"  {_curve(ordered, top)}")
        yield Line(text=f"  {which}, {scale}", tone="quiet")
    if record.observer_max_abs:
        change = max(record.observer_max_abs.values())
        yield Line(
            text=f"  watching changed the outputs by at most {change:.3e}", tone="quiet"
        )
    for text in (*contract_lines(record), *graph_notes(record)):
        yield from wrapped(text, indent="  ", tone="quiet")
    local = {
        row.probe: number_of_floors(row.comparison.floor_multiple)
        for row in record.rows
        if row.what == ISOLATED and row.comparison.floor_multiple is not None
    }
    more = further_metrics(ordered)
    head = f"{'floors':>9} " + (f"{'local':>9} " if local else "")
    head += f"{'max abs':>9} {'SQNR dB':>8} "
    head += "".join(f"{metric.title:>9} " for metric in more)
    yield Line(text=f"{head}  where", tone="quiet")
    for judged in ordered:
        shown = f"{local.get(judged.row.probe, '-'):>9} " if local else ""
        yield _line(judged, top, shown, more)


def samples_of(verdicts: Sequence[CaseVerdict]) -> tuple[str, ...]:
    """Return every sample that was compared, in order."""
    return tuple(
        dict.fromkeys(j.row.sample for verdict in verdicts for j in verdict.rows)
    )


def worst_rows(verdicts: Sequence[CaseVerdict], sample: str = "") -> list[JudgedRow]:
    """Return each value's worst row, or its row of one sample, in order of execution.

    Args:
        verdicts: Verdicts of one case's checks.
        sample: Name of the one sample to take; every sample if empty.

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
    # An output's position counts recorded values; a layer's counts the whole program.
    return sorted(worst.values(), key=lambda j: (j.row.what == OUTPUTS, j.row.position))


def further_metrics(rows: Sequence[JudgedRow]) -> list[Metric]:
    """Return the metrics that a tolerance bounds, without those that have a column."""
    return [
        metric
        for metric in TUNED
        if metric.name not in _ALWAYS
        and any(judged.verdict.tolerance.limit(metric) is not None for judged in rows)
    ]


def _line(judged: JudgedRow, top: float, local: str, more: Sequence[Metric]) -> Line:
    c, row = judged.row.comparison, judged.row
    floors = "-" if c.floor_multiple is None else number_of_floors(c.floor_multiple)
    other = how_rewritten(judged)
    mark = "≠" if other else " " if judged.verdict.passed else "✗"
    bar = "▪" * _height(judged.floors, top)
    head = f"{floors:>9} {local}{c.max_abs:>9.2e} {c.sqnr_db:>8.1f} "
    head += "".join(f"{metric.of(c):>9.2e} " for metric in more)
    head += f"{mark} {bar:<8} "
    op = operator(row.op) + (f", {other}" if other else "")
    place = cut(row.place, WIDTH - len(head) - len(op) - 2)
    return Line(
        text=f"{head}{place}  {op}", tone="" if judged.verdict.passed else "bad"
    )


def _curve(rows: Sequence[JudgedRow], top: float) -> str:
    """Return a one-line plot of the largest error in each stretch of the depth."""
    step = math.ceil(len(rows) / _CURVE)
    heights = [
        max(_height(judged.floors, top) for judged in rows[at : at + step])
        for at in range(0, len(rows), step)
    ]
    return "".join(_PLOT[height] for height in heights)


def _height(multiple: float, top: float) -> int:
    """Return a height: 0 for no error, 1 for up to a floor, 8 for the top or more."""
    highest = len(_PLOT) - 1
    if multiple <= 0.0:
        return 0
    if multiple >= top:
        return highest
    share = math.log(max(multiple, 1.0)) / math.log(top)
    return 1 + math.floor(share * (highest - 1))


def node_data(verdicts: Sequence[CaseVerdict]) -> dict[str, Any]:
    """Return each value's error in noise floors as node data for Model Explorer.

    Model Explorer finds a node by its id, or by the name of a tensor that it makes.
    Both are the names of PyTorch's program: they are the ids of an exported program,
    and the dynamo exporter gives them to nearly all of its tensors. Colours go by how
    much of its tolerance a value uses: up to half, up to all of it, more. A value
    without a number is given one above all others.

    Args:
        verdicts: Verdicts of one case's checks.

    """
    rows = worst_rows(verdicts)
    floors = [judged.row.comparison.floor_multiple for judged in rows]
    finite = [value for value in floors if value is not None and math.isfinite(value)]
    beyond = 10.0 * max([1.0, *finite])
    results = {}
    for judged, value in zip(rows, floors, strict=True):
        known = value is not None and math.isfinite(value)
        usage = judged.verdict.usage if judged.verdict.passed else math.inf
        results[judged.row.probe] = {
            "value": value if known else beyond,
            "bgColor": next(colour for most, colour in _COLOURS if usage <= most),
            "textColor": "#1b2027",
        }
    return {"results": results}
