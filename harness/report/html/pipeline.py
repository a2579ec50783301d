"""A pipeline's part of the page: pictures, errors step by step, who brings them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.e2e.plan import IMAGE, LATENTS
from harness.report.drawn import CLEAN_DB, CURVES, attribution_of, picture_words
from harness.report.html.charts import (
    INTERACTION,
    PALETTE,
    Chart,
    Curve,
    depth_figure,
    shares_figure,
    spark_figure,
)
from harness.report.html.component import gist_of
from harness.report.html.found import BAD, Found, Section, state_of
from harness.report.html.table import Table
from harness.report.html.values import (
    Values,
    drawn_first,
    floors_of,
    limits_of,
    name_of,
    values_of,
    values_table,
)
from harness.report.record import CaseRecord, Row


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
        facts: One line a case: growth, guidance, who sits where.
        table: Every value.
        notes: Failures.

    """

    template: ClassVar[str] = "pipeline.html"

    spark: Chart | None
    chart: Chart | None
    shares: Chart | None
    drawings: Sequence[Drawing]
    facts: Sequence[str]
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
        limits = limits_of(values, drawn, lambda what: what == LATENTS)
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
        facts=tuple(_facts(records)),
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
                    name=f"{name_of(record)} {curve}",
                    x=[judged.row.position // 2 + 1 for _, judged in own],
                    y=[floors_of(judged) for _, judged in own],
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
            f"PSNR {picture.psnr_db:.1f} dB, SSIM {picture.ssim:.4f}, off by at most "
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


def _facts(records: Sequence[CaseRecord]) -> Iterator[str]:
    for record in records:
        chain: Mapping[str, object] = record.chain or {}
        words = [picture_words(record)]
        if growth := chain.get("growth"):
            words.append(f"grows {growth:.2f} × a step")
        guidance = chain.get("guidance")
        if isinstance(guidance, list | tuple) and guidance:
            words.append(f"guidance amplifies {max(guidance):.2f} × at most")
        words.append(str(chain.get("signature") or ""))
        if told := ", ".join(filter(None, words)):
            yield f"{name_of(record)}: {told}"


def _notes(records: Sequence[CaseRecord]) -> Iterator[str]:
    for record in records:
        if record.failure is not None:
            failure = record.failure
            yield f"{name_of(record)}: {failure.outcome}. {failure.message}"
