"""The rows of one check of one case, held against those of another run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.core.ladder import RTOL_LADDER
from harness.core.pipeline import IMAGE
from harness.core.record import LAYERS
from harness.core.text import count, in_floors
from harness.measure.metrics import METRIC, METRICS, Metric
from harness.report.runs import thresholds
from harness.report.runs.snapshot import KeptCase, KeptRow, psnr_db
from harness.report.runs.thresholds import Change

RtolOf = Callable[[str, KeptRow], float]
"""Case and row to the rtol of the tier that it is judged by."""


def rows_of(case: KeptCase, what: str) -> list[KeptRow]:
    """Return the rows of one check."""
    return [row for row in case.rows if row.what == what]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What became of one row, in words, and how many times the error is another."""

    change: Change
    words: str = ""
    factor: float = 1.0


def compare_rows(
    name: str, what: str, before: KeptCase, after: KeptCase, rtol_of: RtolOf
) -> Iterator[Compared]:
    """Hold the rows of one check against another run's, over the union of both."""
    one, two = rows_of(before, what), rows_of(after, what)
    otherwise = {row.sample for row in two if not one_question(row, before, after)}
    for was, is_ in paired(one, two, otherwise):
        row = is_ or was
        place = f"{row.module or row.probe} ({row.sample})" if row else ""
        if was is None or is_ is None:
            yield Compared(
                change=Change.NEW if was is None else Change.GONE, words=place
            )
            continue
        other = "other weights, configuration or inputs"
        if is_.sample in otherwise or (other := _other_reference(was, is_)):
            yield Compared(change=Change.INCOMPARABLE, words=f"{place}: {other}")
            continue
        if was == is_:
            yield Compared(change=Change.SAME)
            continue
        found = _row(was, is_, RTOL_LADDER.index(rtol_of(name, is_)))
        yield Compared(
            change=found.change, words=f"{place}: {found.words}", factor=found.factor
        )


def paired(
    before: Sequence[KeptRow], after: Sequence[KeptRow], otherwise: Collection[str] = ()
) -> Iterator[tuple[KeptRow | None, KeptRow | None]]:
    """Yield each row with its counterpart, if there is one.

    Another exporter names layers otherwise, or gives a name to another value: what the
    names leave over is paired by what it is, the value of one module with one shape and
    one magnitude. Of samples in `otherwise`, which ask another question, names alone
    tell.
    """
    by_name = {row.key: row for row in after}
    alone = []
    for row in before:
        named = by_name.get(row.key)
        must_match = row.what == LAYERS and row.sample not in otherwise
        if named and not (must_match and _other_reference(row, named)):
            yield row, by_name.pop(row.key)
        else:
            alone.append(row)
    by_value: dict[tuple[object, ...], list[KeptRow]] = {}
    for row in by_name.values():
        by_value.setdefault(_value(row), []).append(row)
    for row in alone:
        found = by_value.get(_value(row))
        yield row, found.pop(0) if found else None
    yield from ((None, row) for rows in by_value.values() for row in rows)


def _value(row: KeptRow) -> tuple[object, ...]:
    return row.sample, row.module or row.probe, row.shape, f"{row.expected_rms:.3g}"


def one_question(row: KeptRow, before: KeptCase, after: KeptCase) -> bool:
    """Whether both runs asked the same of a sample, as far as they tell."""
    one, two = (
        case.inputs.get(row.sample, case.inputs.get("")) for case in (before, after)
    )
    # A report of an earlier version does not tell.
    return not one or not two or one == two


def _other_reference(was: KeptRow, is_: KeptRow) -> str:
    """Say why errors of two rows mean different things; empty if they do not."""
    if was.shape != is_.shape:
        return f"shape {list(was.shape)} before, {list(is_.shape)} now"
    rounding = max(
        thresholds.SAME_REFERENCE * max(was.expected_rms, is_.expected_rms),
        thresholds.RMS_FLOORS * max(was.floor or 0.0, is_.floor or 0.0),
    )
    if was.nonfinite or is_.nonfinite:
        # The reference's rms is of the places at which both sides are finite.
        return ""
    if abs(was.expected_rms - is_.expected_rms) > rounding:
        return f"the reference's rms was {was.expected_rms:g}, is {is_.expected_rms:g}"
    return ""


def _row(was: KeptRow, is_: KeptRow, step: int) -> Compared:
    """Hold two errors of the same value against each other."""
    if was.nonfinite != is_.nonfinite:
        return Compared(
            change=Change.WORSE if is_.nonfinite > was.nonfinite else Change.BETTER,
            words=f"not finite at {was.nonfinite:,} → {count(is_.nonfinite, 'place')}",
            factor=math.inf,
        )
    floor = max(was.floor, is_.floor) if was.floor and is_.floor else None
    changes, words, factors = [], [], [1.0]
    for metric in METRICS:
        if metric.name not in thresholds.MOVES:
            continue
        one, two = (_number(row, metric, step) for row in (was, is_))
        change = thresholds.of_metric(metric.name, one, two, floor)
        if change is not Change.SAME:
            changes.append(change)
            words.append(_moved(metric, was, is_, step))
            factors.append(_apart(one, two))
    if not changes:
        return Compared(change=Change.SAME)
    return Compared(
        change=Change.WORSE if Change.WORSE in changes else Change.BETTER,
        words=", ".join(words),
        factor=max(factors),
    )


def _number(row: KeptRow, metric: Metric, step: int) -> float:
    number: float | tuple[float, ...] = getattr(row, metric.name)
    return number[step] if isinstance(number, tuple) else number


def _moved(metric: Metric, was: KeptRow, is_: KeptRow, step: int) -> str:
    """Say from where to where a number of a row went."""
    one, two = (_number(row, metric, step) for row in (was, is_))
    after = ""
    if metric.name == "rms" and is_.what == IMAGE:
        # A picture's rms is said as every reader of pictures says it.
        metric, one, two = METRIC["psnr_db"], psnr_db(one), psnr_db(two)
    elif metric.name == "rms" and was.floors is not None and is_.floors is not None:
        return f"{in_floors(was.floors)} → {in_floors(is_.floors)}"
    elif metric.name == "atol":
        after = f" at rtol {RTOL_LADDER[step]:.0e}" if step else " at rtol 0"
    return metric.phrase.format(f"{one:{metric.spec}} → {two:{metric.spec}}") + after


def _apart(before: float, after: float) -> float:
    small, large = sorted((before, after))
    return large / small if small > 0.0 and math.isfinite(large) else math.inf


def together(what: str, rows: Sequence[Compared]) -> Compared:
    """Return what became of a check, and its loudest row in words."""
    by_change: dict[Change, list[Compared]] = {}
    for row in rows:
        by_change.setdefault(row.change, []).append(row)
    # Layers come and go with the exporter's choice of operators: coverage tells
    # whether fewer are looked at. An output or a sample that is gone is another thing.
    order = [Change.WORSE, Change.INCOMPARABLE, Change.GONE, Change.BETTER, Change.NEW]
    if what == LAYERS and by_change.get(Change.SAME):
        order = [Change.WORSE, Change.INCOMPARABLE, Change.BETTER]
    for change in order:
        if found := by_change.get(change):
            loudest = max(found, key=lambda row: row.factor)
            number = f"{len(found):,} of {count(len(rows), 'value')}"
            return replace(loudest, words=f"{number}; {loudest.words}")
    return Compared(change=Change.SAME)
