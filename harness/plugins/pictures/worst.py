"""The errors of a pipeline case's pictures, and the components that cause them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.core.end_to_end import IMAGE, SQUARED, app_causes
from harness.core.record import CaseRecord, Row
from harness.plugins.pictures.distribution import READ
from harness.plugins.pictures.words import CLEAN_DB, attribution_of

PEAK = 255.0
"""Largest level of a picture."""

_INTERACTION = 0.01
"""Smallest share of the error, caused by no role alone, that is mentioned."""


def psnr_db(rms: float) -> float:
    """Return a picture's peak signal to noise ratio, in dB, from its error's rms.

    An error that is not finite has none.

    >>> round(psnr_db(2.55)), psnr_db(0.0), psnr_db(math.inf)
    (40, inf, nan)
    """
    if rms == 0.0:
        return math.inf
    return 20 * math.log10(PEAK / rms) if math.isfinite(rms) else math.nan


def metric_words(name: str, error: float, usage: str) -> str:
    """Return a metric of one pair as a phrase; empty where the reader reads the same.

    Args:
        name: Name of the metric.
        error: The error by which pairs are compared: levels for PSNR, 0 or 1 for the
            reader, the root where the metric is in `SQUARED`.
        usage: A phrase about the error as a share of its limit.

    >>> metric_words("psnr", 2.55, "82 % of its limit")
    'PSNR 40.0 dB, 82 % of its limit'
    >>> metric_words("ssim", 0.1, "2.00 × its limit"), metric_words("read", 1.0, "")
    ('SSIM 0.9900, 2.00 × its limit', 'read as another thing')
    """
    if name == READ:
        return "read as another thing" if error else ""
    if math.isnan(error):
        return f"{name} of a picture that is not finite"
    if name == "psnr":
        return f"PSNR {psnr_db(error):.1f} dB, {usage}"
    value = error**2 if name in SQUARED else error
    if name == "ssim":
        return f"SSIM {1 - value:.4f}, {usage}"
    return f"{name} {value:.3g}, {usage}"


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """The worst picture of a case, in each measure.

    Attributes:
        psnr_db: Least peak signal to noise ratio, in decibels.
        ssim: Least structural similarity.
        max_abs: Largest difference, in levels of 0 to 255.
        clean: Whether all pictures differ by rounding alone.
        causes: The setting of the app that decides the error, or the share of each role
            in it; empty where that was not measured, or where the pictures are clean.

    """

    psnr_db: float
    ssim: float
    max_abs: float
    clean: bool
    causes: str


def pictures_of(record: CaseRecord) -> Pictures | None:
    """Return the errors of a case's pictures; None where none was measured."""
    rows = [row for row in record.rows if row.what == IMAGE]
    measured = [
        (row.comparison.max_abs, row.comparison.picture)
        for row in rows
        if row.comparison.picture is not None
    ]
    if not measured:
        return None
    clean = len(measured) == len(rows) and all(
        picture.psnr_db > CLEAN_DB for _, picture in measured
    )
    return Pictures(
        psnr_db=min(picture.psnr_db for _, picture in measured),
        ssim=min(picture.ssim for _, picture in measured),
        max_abs=max(max_abs for max_abs, _ in measured),
        clean=clean,
        causes="" if clean else _causes(record),
    )


def _causes(record: CaseRecord) -> str:
    if settings := app_causes(record):
        # It acts in a role, but that role's file is right.
        return "; ".join(settings)
    found = attribution_of(record)
    parts = found.parts.items() if found else ()
    shares = [f"{role} {round(part.share, 2) + 0.0:.0%}" for role, part in parts]
    if found and abs(found.interaction) >= _INTERACTION:
        shares.append(f"interaction {found.interaction:.0%}")
    return ", ".join(shares)


def worst_drawing(record: CaseRecord) -> tuple[Row, str] | None:
    """Return the worst picture whose file was kept, and the path of that file."""
    rows = [row for row in record.rows if row.what == IMAGE]
    kept = zip(rows, (record.pipeline or {}).get("pictures") or (), strict=False)
    return max(kept, key=lambda pair: rms_of(pair[0]), default=None)


def rms_of(row: Row) -> float:
    """Return a picture's error, infinite where it is no number."""
    rms = row.comparison.rms
    return rms if math.isfinite(rms) else math.inf
