"""A pipeline's part of the page: pictures, errors step by step, who brings them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.core.pipeline import IMAGE, LATENTS
from harness.core.record import CaseRecord, Row
from harness.judge.pipeline import CLEAN_DB, CURVES, attribution_of
from harness.measure.attribution import Attribution
from harness.measure.metrics import METRIC
from harness.report.html.charts import (
    INTERACTION,
    PALETTE,
    Chart,
    Curve,
    depth_figure,
    shares_figure,
    spark_figure,
)
from harness.report.html.found import BAD, Found, Section, state_of
from harness.report.html.table import Column, Table, Words, short
from harness.report.html.values import (
    Values,
    drawn_first,
    gist_of,
    limits_of,
    name_of,
    values_of,
    values_table,
)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What a case drew: PyTorch's picture, its own and their difference in one.

    Attributes:
        path: Of the picture, from the run's folder.
        case: Who drew it.
        words: How far it is off.
        prompt: What was asked for.
        amplified: By how much the difference is multiplied.
        rms: How far it is off, for choosing the worst.

    """

    path: str
    case: str
    words: str
    prompt: str
    amplified: str
    rms: float


@dataclass(frozen=True, kw_only=True)
class PipelinePart(Section):
    """One pipeline in all its cases.

    Attributes:
        spark: Its chart in small, for a card.
        chart: Error along the steps.
        shares: Who brings the pictures' error.
        drawings: The worst picture of each case.
        cases: How far each case's pictures are off, and how its errors grow.
        table: Every value.
        notes: Failures.

    """

    template: ClassVar[str] = "pipeline.html"

    spark: Chart | None
    chart: Chart | None
    shares: Chart | None
    drawings: Sequence[Drawing]
    cases: Table | None
    table: Table | None
    notes: Sequence[str] = ()


def pipelines(found: Found) -> Iterator[PipelinePart]:
    """Yield a section a pipeline."""
    for number, (name, records) in enumerate(found.subjects(chains=True).items()):
        yield _pipeline(found, f"pipeline-{number}", name, records)


def _pipeline(
    found: Found, ident: str, name: str, records: Sequence[CaseRecord]
) -> PipelinePart:
    values = values_of(found, records)
    states = [found.state(record) for record in records]
    spark = chart = table = None
    if any(values.values()):
        table = values_table(
            f"{ident}-values", f"Latents and pictures of {name}", values, records
        )
        curves = _curves(found, records, values)
        drawn = drawn_first(found, records)
        limits = limits_of(values, drawn, LATENTS)
        chart = Chart(
            id=f"{ident}-steps",
            figure=depth_figure(curves, limits, x_title="denoising step"),
            alt=f"Error of the latents of {name} in noise floors, step by step: with "
            "errors that feed back, and dotted the error of each step alone.",
            table=table.id,
        )
        free = [curve for curve in curves if curve.shown and not curve.dashed]
        spark = Chart(
            id=f"{ident}-spark",
            figure=spark_figure(free, limits),
            alt=f"The same in small: {name}",
            height=64,
            still=True,
        )
    return PipelinePart(
        id=ident,
        title=name,
        state=state_of(states),
        gist=gist_of(found, records, values),
        open=BAD in states,
        spark=spark,
        chart=chart,
        shares=_shares(ident, name, records),
        drawings=tuple(_drawings(records)),
        cases=_cases(f"{ident}-cases", name, records),
        table=table,
        notes=tuple(_notes(records)),
    )


def _curves(found: Found, records: Sequence[CaseRecord], values: Values) -> list[Curve]:
    """Return two curves a case: errors that feed back, and those of single steps."""
    drawn = drawn_first(found, records)
    curves, first_row = [], 0
    for at, record in enumerate(records):
        ordered = values[name_of(record)]
        for curve in reversed(CURVES):
            own = [
                (row, judged)
                for row, judged in enumerate(ordered, first_row)
                if judged.row.op == curve
            ]
            curves.append(
                Curve(
                    case=name_of(record),
                    x=[judged.row.position // 2 + 1 for _, judged in own],
                    y=[judged.floors for _, judged in own],
                    rows=[row for row, _ in own],
                    passed=[judged.verdict.passed for _, judged in own],
                    shown=record in drawn,
                    dashed=curve == CURVES[0],
                    colour=at % len(PALETTE),
                )
            )
        first_row += len(ordered)
    return curves


def _shares(ident: str, name: str, records: Sequence[CaseRecord]) -> Chart | None:
    """Return who brings the error, of cases that are off by more than rounding."""
    parted = {
        name_of(record): attribution
        for record in records
        if (attribution := attribution_of(record)) and not _clean(record)
    }
    if not parted:
        return None
    seats = dict.fromkeys(seat for one in parted.values() for seat in one.parts)
    shares = {
        seat: [
            one.parts[seat].share if seat in one.parts else 0.0
            for one in parted.values()
        ]
        for seat in seats
    }
    shares[INTERACTION] = [one.interaction for one in parted.values()]
    told = "; ".join(
        f"{case}: {one.parts[one.culprit].share:.0%} from {one.culprit}"
        for case, one in parted.items()
    )
    return Chart(
        id=f"{ident}-shares",
        figure=shares_figure(list(parted), shares),
        alt=f"Who brings the error of the pictures of {name}. {told}.",
        height=110 + 34 * len(parted),
    )


def _clean(record: CaseRecord) -> bool:
    return all(
        row.comparison.picture is not None and row.comparison.picture.psnr_db > CLEAN_DB
        for row in _pictures(record)
    )


def _pictures(record: CaseRecord) -> list[Row]:
    return [row for row in record.rows if row.what == IMAGE]


def _drawings(records: Sequence[CaseRecord]) -> Iterator[Drawing]:
    """Yield the worst kept picture of each case, the worst case first."""
    worst = []
    for record in records:
        paths: Sequence[str] = (record.chain or {}).get("pictures") or ()
        kept = list(zip(_pictures(record), paths, strict=False))
        if kept:
            row, path = max(kept, key=lambda pair: _rms(pair[0]))
            worst.append(_drawing(record, row, path))
    yield from sorted(worst, key=lambda drawing: -drawing.rms)


def _rms(row: Row) -> float:
    rms = row.comparison.rms
    return rms if math.isfinite(rms) else math.inf


def _drawing(record: CaseRecord, row: Row, path: str) -> Drawing:
    picture = row.comparison.picture
    words = ""
    if picture is not None:
        words = (
            f"{METRIC['psnr_db'].said(row.comparison)}, "
            f"{METRIC['ssim'].said(row.comparison)}, off by at most "
            f"{row.comparison.max_abs:.3g} of 255"
        )
        if picture.expected_read:
            words += f", read {picture.actual_read} for {picture.expected_read}"
    return Drawing(
        path=path,
        case=name_of(record),
        words=words,
        prompt=row.module,
        # The file's name says it: 0-difference-x16.png.
        amplified=path.rpartition("-x")[2].removesuffix(".png"),
        rms=_rms(row),
    )


def _cases(ident: str, name: str, records: Sequence[CaseRecord]) -> Table | None:
    """Return a table of how far each case's worst picture is off, and why."""
    cases, seats, signs = Words(), Words(), Words()
    rows = []
    for record in records:
        chain: Mapping[str, Any] = record.chain or {}
        pictures = [
            (row.comparison.max_abs, row.comparison.picture)
            for row in _pictures(record)
            if row.comparison.picture is not None
        ]
        if not pictures:
            continue
        found = None if _clean(record) else attribution_of(record)
        rows.append(
            [
                cases.at(name_of(record)),
                short(min(picture.psnr_db for _, picture in pictures)),
                short(min(picture.ssim for _, picture in pictures)),
                short(max(max_abs for max_abs, _ in pictures)),
                short(chain.get("growth")),
                short(max(chain.get("guidance") or (), default=None)),
                seats.at(_brought(found)),
                signs.at(chain.get("signature") or ""),
            ]
        )
    if not rows:
        return None
    columns: Sequence[Column] = (
        Column(title="case", words=cases.all),
        Column(title="PSNR dB", kind="number", hint="of the worst picture"),
        Column(title="SSIM", kind="ssim", hint="of the worst picture", minor=True),
        Column(title="off by", kind="number", hint="at most, of 255", minor=True),
        Column(title="growth", kind="number", hint="of the error, times a step"),
        Column(title="guidance", kind="number", hint="times it amplifies", minor=True),
        Column(title="brought by", words=seats.all),
        Column(title="signature", words=signs.all, minor=True),
    )
    if not any(signs.all):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    caption = f"Pictures of {name}: how far off, and who brings it"
    return Table(id=ident, caption=caption, columns=columns, rows=rows, unit="case")


def _brought(found: Attribution | None) -> str:
    if found is None:
        return ""
    return f"{found.parts[found.culprit].share:.0%} {found.culprit}"


def _notes(records: Sequence[CaseRecord]) -> Iterator[str]:
    for record in records:
        if record.failure is not None:
            failure = record.failure
            yield f"{name_of(record)}: {failure.outcome}. {failure.message}"
