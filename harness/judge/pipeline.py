"""An end-to-end case in words: how far the picture is off, since when, and by whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from harness.core.app import DECIDES, Setting
from harness.core.pipeline import IMAGE
from harness.core.record import CaseRecord, Row
from harness.core.text import Line, in_floors
from harness.measure.attribution import Attribution
from harness.measure.metrics import METRIC

CURVES = ("teacher-forced", "free-running")
"""Errors of single steps, and errors that feed back."""

CLEAN_DB = 60.0
"""Above this PSNR a picture is off by less than a third of a grey level: who brings
that is rounding, and not worth a word."""

_BARS = " ▁▂▃▄▅▆▇█"
_DECADES = 4
"""How much of the range below the largest error a curve shows."""


def picture_words(record: CaseRecord) -> str:
    """Return how far the worst picture is off, and who or what brings most of that.

    Empty for what is no end-to-end case, or drew nothing.
    """
    pictures = [row.comparison for row in record.rows if row.what == IMAGE]
    if not pictures:
        return ""
    psnr = [c.picture.psnr_db for c in pictures if c.picture is not None]
    if len(psnr) < len(pictures):
        return "picture of another size"
    if any(map(math.isnan, psnr)):
        words, worst_db = "picture not finite", math.nan
    elif math.isinf(worst_db := min(psnr)):
        return "picture equal"
    else:
        words = f"picture {worst_db:.1f} dB"
        if worst_db > CLEAN_DB:
            return words
        words += f", off by {max(c.max_abs for c in pictures):.3g} of 255"
    return " · ".join(filter(None, (words, _cause(record))))


def _cause(record: CaseRecord) -> str:
    """Say which number of the app brings the error, or which seat most of it."""
    causes = [s.words for s in app_settings(record) if s.share >= DECIDES]
    if causes:
        return "; ".join(causes)
    found = attribution_of(record)
    if found is None:
        return ""
    return f"{found.parts[found.culprit].share:.0%} from {found.culprit}"


def attribution_of(record: CaseRecord) -> Attribution | None:
    """Return who brought the error, where seats were exchanged."""
    found = (record.chain or {}).get("attribution")
    return Attribution.from_json(found) if found else None


def app_settings(record: CaseRecord) -> list[Setting]:
    """Return the app's numbers that are not the reference's."""
    return [Setting.from_json(each) for each in (record.chain or {}).get("app", ())]


def chain_lines(record: CaseRecord) -> Iterator[Line]:
    """Yield a chain's curves, what guidance does, who brings the error, pictures."""
    chain = record.chain or {}
    seats = ", ".join(f"{seat} {who}" for seat, who in chain.get("seats", {}).items())
    yield Line(text=f"  {seats}", tone="quiet")
    for kind in CURVES:
        errors = [
            row.comparison.floor_multiple or 0.0
            for row in record.rows
            if row.op == kind
        ]
        if errors:
            broken = any(math.isnan(error) for error in errors)
            worst = "not finite" if broken else f"up to {in_floors(max(errors))}"
            yield Line(text=f"  {kind:<15} {curve(errors)}  {worst}")
    if chain.get("growth"):
        growth = f"  grows {chain['growth']:.2f} × a step"
        guidance = chain.get("guidance") or ()
        if guidance:
            growth += f", guidance amplifies {max(guidance):.2f} × at most"
        yield Line(text=growth)
    if chain.get("signature"):
        yield Line(text=f"  {chain['signature']}", tone="bad")
    for setting in app_settings(record):
        share = f"{setting.share:.1%} of the error's power goes without it"
        yield Line(text=f"  {setting.words}; {share}", tone="bad")
    yield from _parts(record)
    for picture in _picture_rows(record):
        yield _picture_line(picture)
    for path in chain.get("pictures", ())[:1]:
        yield Line(text=f"  pictures        {path.rpartition('/')[0]}", tone="quiet")


def _parts(record: CaseRecord) -> Iterator[Line]:
    found = attribution_of(record)
    if found is None:
        return
    yield Line(
        text=f"  picture off by {found.rms:.3g} of 255 rms; of that error's power",
        tone="quiet",
    )
    for seat, part in found.parts.items():
        yield Line(
            text=f"    {part.share:>6.1%} {seat:<16} alone {part.alone:.3g}, "
            f"without it {part.without:.3g}"
        )
    yield Line(text=f"    {found.interaction:>6.1%} interaction", tone="quiet")


def _picture_rows(record: CaseRecord) -> list[Row]:
    return [row for row in record.rows if row.what == IMAGE]


def _picture_line(row: Row) -> Line:
    c, picture = row.comparison, row.comparison.picture
    if picture is None:
        return Line(text=f"  {row.probe}: not measured as a picture", tone="bad")
    words = (
        f"  {row.probe:<11} max {c.max_abs:.3g} mean {picture.mean_abs:.3g} of 255, "
        f"{METRIC['psnr_db'].said(c)}, {METRIC['ssim'].said(c)}, "
    )
    if picture.perceptual is None:
        words += f"perceptual: {picture.perceptual_by}"
    else:
        words += f"{picture.perceptual_by} {picture.perceptual:.4f}"
    if picture.expected_read:
        words += f", read {picture.actual_read} for {picture.expected_read}"
    return Line(text=words)


def curve(errors: Sequence[float]) -> str:
    """Return a bar a step, log scale, the largest error at the top.

    >>> curve([1.0, 10.0, 100.0])
    '▄▆█'
    """
    top = max((e for e in errors if math.isfinite(e)), default=0.0)
    if top <= 0.0:
        return _BARS[0] * len(errors)
    return "".join(_bar(error, top) for error in errors)


def _bar(error: float, top: float) -> str:
    if not math.isfinite(error):
        return "!"
    if error <= 0.0:
        return _BARS[0]
    highest = len(_BARS) - 1
    share = 1 + math.log10(error / top) / _DECADES
    return _BARS[max(1, min(highest, math.floor(share * highest)))]
