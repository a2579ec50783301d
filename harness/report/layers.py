"""The values of one case in order of execution, their errors as a small plot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from harness.core.outcome import Outcome
from harness.core.record import ISOLATED, OUTPUTS, CaseRecord
from harness.core.text import (
    WIDTH,
    Line,
    count,
    cut,
    in_floors,
    number_of_floors,
    operator,
    wrapped,
)
from harness.judge.another import how_another
from harness.judge.case import CaseVerdict, JudgedRow
from harness.judge.contract import contract_lines
from harness.judge.graph_check import graph_notes
from harness.judge.pipeline import chain_lines
from harness.measure.metrics import TUNED, Metric

_PLOT = " ▁▂▃▄▅▆▇█"
_CURVE = 72
_ALWAYS = ("atol", "floors", "sqnr_db")
"""Bounds with a column in every listing; that of atol is the largest error."""
_LEAST_TOP = 16.0
"""Floors at the top of the plot, unless an error is larger."""


def layer_lines(
    record: CaseRecord, verdicts: Sequence[CaseVerdict], *, sample: str = ""
) -> Iterator[Line]:
    """Yield a case's values, the worst over samples or those of one sample.

    Args:
        record: Of the case.
        verdicts: Of its checks.
        sample: Only this one.

    """
    ordered = worst_rows(verdicts, sample)
    if not ordered:
        why = record.failure.message if record.failure else "its record has none"
        yield Line(text=f"{record.case}: no values were compared: {why}", tone="bad")
        return
    out = sum(not judged.verdict.passed for judged in ordered)
    told = f"{out:,} out of tolerance" if out else "all within tolerance"
    if others := sum(bool(how_another(judged)) for judged in ordered):
        told += f" but {count(others, 'other value')}"
    which = f"of sample {sample}" if sample else "the worst of all samples"
    values = f"{count(len(ordered), 'value')} in order of execution"
    tone = "bad" if out else "good"
    yield Line(text=f"{record.case}: {values}, {told}", tone=tone)
    for verdict in verdicts:
        # Gaps, and too little compared, are on no value's line.
        by_rows = verdict.first is not None and verdict.outcome is verdict.found
        if verdict.outcome is not Outcome.WITHIN and not by_rows:
            text = f"{verdict.what}: {verdict.outcome}: {verdict.reason}"
            tone = "quiet" if verdict.outcome.passed else "bad"
            yield from wrapped(text, indent="  ", tone=tone)
    errors = (judged.floors for judged in ordered)
    top = max([_LEAST_TOP, *filter(math.isfinite, errors)])
    if record.chain:
        yield from chain_lines(record)
    else:
        yield Line(text=f"  {_curve(ordered, top)}")
        scale = f"log scale from 1 to {in_floors(top)}"
        yield Line(text=f"  error along the depth, {which}, {scale}", tone="quiet")
    if record.observer_max_abs:
        seen = max(record.observer_max_abs.values())
        yield Line(
            text=f"  watching changed the outputs by at most {seen:.3e}", tone="quiet"
        )
    for text in (*contract_lines(record), *graph_notes(record)):
        yield from wrapped(text, indent="  ", tone="quiet")
    own = {
        row.probe: number_of_floors(row.comparison.floor_multiple)
        for row in record.rows
        if row.what == ISOLATED and row.comparison.floor_multiple is not None
    }
    more = further_metrics(ordered)
    head = f"{'floors':>9} " + (f"{'own':>9} " if own else "")
    head += f"{'max abs':>9} {'SQNR dB':>8} "
    head += "".join(f"{metric.title:>9} " for metric in more)
    yield Line(text=f"{head}  where", tone="quiet")
    for judged in ordered:
        shown = f"{own.get(judged.row.probe, '-'):>9} " if own else ""
        yield _line(judged, top, shown, more)


def samples_of(verdicts: Sequence[CaseVerdict]) -> tuple[str, ...]:
    """Return every sample that was compared, in order."""
    return tuple(
        dict.fromkeys(j.row.sample for verdict in verdicts for j in verdict.rows)
    )


def worst_rows(verdicts: Sequence[CaseVerdict], sample: str = "") -> list[JudgedRow]:
    """Return each value's worst row, or its row of one sample, in order of execution.

    Args:
        verdicts: Of one case's checks.
        sample: Only this one.

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
    # An output's position counts what was recorded, a layer's the whole program.
    return sorted(worst.values(), key=lambda j: (j.row.what == OUTPUTS, j.row.position))


def further_metrics(rows: Sequence[JudgedRow]) -> list[Metric]:
    """Return the metrics that some tolerance bounds and that have no column anyway."""
    return [
        metric
        for metric in TUNED
        if metric.name not in _ALWAYS
        and any(judged.verdict.tolerance.limit(metric) is not None for judged in rows)
    ]


def _line(judged: JudgedRow, top: float, own: str, more: Sequence[Metric] = ()) -> Line:
    c, row = judged.row.comparison, judged.row
    floors = "-" if c.floor_multiple is None else number_of_floors(c.floor_multiple)
    mark = " " if judged.verdict.passed else "✗"
    other = how_another(judged)
    mark = "≠" if other else mark
    bar = "▪" * _height(judged.floors, top)
    head = f"{floors:>9} {own}{c.max_abs:>9.2e} {c.sqnr_db:>8.1f} "
    head += "".join(f"{metric.of(c):>9.2e} " for metric in more)
    head += f"{mark} {bar:<8} "
    op = operator(row.op) + (f", {other}" if other else "")
    place = cut(row.module or row.probe, WIDTH - len(head) - len(op) - 2)
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
    """Return 0 for no error, 1 for up to a floor, 8 for the top and beyond."""
    highest = len(_PLOT) - 1
    if multiple <= 0.0:
        return 0
    if multiple >= top:
        return highest
    share = math.log(max(multiple, 1.0)) / math.log(top)
    return 1 + math.floor(share * (highest - 1))
