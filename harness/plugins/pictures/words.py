"""Messages of an end-to-end case: the error of a picture, its growth and its cause."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.core.end_to_end import IMAGE, PAIRS, app_causes, app_settings
from harness.core.outcome import CheckFinding, Outcome, Precedence
from harness.core.record import CaseRecord, Row
from harness.core.table import Column, ReportTable
from harness.core.text import Line, curve, in_floors, wrapped
from harness.measure.attribution import Attribution
from harness.measure.metrics import METRIC
from harness.plugins.pictures.distribution import (
    Conclusion,
    all_claims,
    pair_words,
    verdict_of,
)

CURVES = ("teacher-forced", "free-running")
"""Two kinds of errors: those of single steps, and those that feed back."""

CLEAN_DB = 60.0
"""PSNR above which the error of a picture is less than a third of a grey level. Its
cause is then rounding, and no message names it."""

_RELEASES = {
    Conclusion.SHIP: Outcome.WITHIN,
    Conclusion.WORSE: Outcome.WORSE,
    Conclusion.OPEN: Outcome.OPEN,
}


def pair_finding(
    record: CaseRecord, what: str, *, failing: bool
) -> CheckFinding | None:
    """Return the decision on a case's many pictures, as far as they were drawn."""
    del failing
    pairs = (record.pipeline or {}).get(PAIRS)
    if what != PAIRS or not pairs:
        return None
    outcome = _RELEASES[verdict_of(pairs)]
    return CheckFinding(outcome, pair_words(pairs), Precedence.INSTEAD)


def gist(record: CaseRecord, what: str) -> Iterator[str]:
    """Yield the error of the worst picture, or the decision on many pictures."""
    pairs = (record.pipeline or {}).get(PAIRS)
    if what == PAIRS and pairs and record.failure is None:
        yield pair_words(pairs).partition(";")[0]
    elif what == IMAGE and (words := picture_words(record)):
        yield words


def picture_words(record: CaseRecord) -> str:
    """Return a message about the worst picture's error and its main cause.

    The message is empty for other cases, and if nothing was drawn.
    """
    pictures = [row.comparison for row in record.rows if row.what == IMAGE]
    if not pictures:
        return ""
    psnr = [c.picture.psnr_db for c in pictures if c.picture is not None]
    causes, found = app_causes(record), attribution_of(record)
    if len(psnr) < len(pictures):
        return "picture of another size"
    if any(map(math.isnan, psnr)):
        words = "picture not finite"
    elif math.isinf(worst_db := min(psnr)):
        return "picture equal"
    else:
        words = f"picture {worst_db:.1f} dB"
        if worst_db > CLEAN_DB:
            # Another setting of the app is a cause however small its error is here.
            return " · ".join((words, *causes))
        words += f", off by {max(c.max_abs for c in pictures):.3g} of 255"
    if not causes and found:
        causes = [f"{found.parts[found.culprit].share:.0%} from {found.culprit}"]
    return " · ".join(filter(None, (words, "; ".join(causes))))


def attribution_of(record: CaseRecord) -> Attribution | None:
    """Return the share of each role in the error, if roles were exchanged."""
    found = (record.pipeline or {}).get("attribution")
    return Attribution.from_json(found) if found else None


def pipeline_lines(record: CaseRecord) -> Iterator[Line]:
    """Yield a pipeline's curves, growth, shares of the error by role, and pictures."""
    found = record.pipeline or {}
    roles = ", ".join(f"{role} {who}" for role, who in found.get("roles", {}).items())
    yield Line(text=f"  {roles}", tone="quiet")
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
    if found.get("growth"):
        growth = f"  grows {found['growth']:.2f} × a step"
        guidance = found.get("guidance") or ()
        if guidance:
            growth += f", guidance amplifies {max(guidance):.2f} × at most"
        yield Line(text=growth)
    if found.get("signature"):
        yield Line(text=f"  {found['signature']}", tone="bad")
    for setting in app_settings(record):
        share = f"without it the error has {setting.share:.1%} less power"
        yield Line(text=f"  {setting.words}; {share}", tone="bad")
    yield from _parts(record)
    pictures = [row for row in record.rows if row.what == IMAGE]
    yield from ReportTable(
        columns=(
            Column("", [row.probe for row in pictures]),
            Column("", [*map(picture_errors, pictures)]),
        ),
        tones=["" if row.comparison.picture else "bad" for row in pictures],
    ).lines(indent="  ")
    if pairs := found.get(PAIRS):
        yield Line(text="  pairs, claim by claim", tone="quiet")
        for words in all_claims(pairs):
            yield from wrapped(words, indent="    ")
    for path in found.get("pictures", ())[:1]:
        yield Line(text=f"  pictures        {path.rpartition('/')[0]}", tone="quiet")


def _parts(record: CaseRecord) -> Iterator[Line]:
    found = attribution_of(record)
    if found is None:
        return
    share = f"{found.interaction:.1%}"
    yield Line(
        text=f"  picture off by {found.rms:.3g} of 255 rms; of that error's power",
        tone="quiet",
    )
    parts = found.parts.values()
    yield from ReportTable(
        columns=(
            Column("", [*(f"{p.share:.1%}" for p in parts), share], "number"),
            Column("", [*found.parts, "interaction"]),
            Column("alone", [*(p.alone for p in parts), ""], "number"),
            Column("without it", [*(p.without for p in parts), ""], "number"),
        )
    ).lines(indent="    ")


def picture_errors(row: Row) -> str:
    """Return every measure of a picture's error as a phrase."""
    c, picture = row.comparison, row.comparison.picture
    if picture is None:
        return "not measured as a picture"
    words = [
        METRIC["psnr_db"].said(c),
        METRIC["ssim"].said(c),
        f"off by at most {c.max_abs:.3g} of 255, {picture.mean_abs:.3g} on average",
        f"perceptual: {picture.perceptual_by}"
        if picture.perceptual is None
        else f"{picture.perceptual_by} {picture.perceptual:.4f}",
    ]
    if picture.expected_read:
        words.append(f"read {picture.actual_read} for {picture.expected_read}")
    return ", ".join(words)
