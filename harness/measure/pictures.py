"""Measure how far two pictures differ, and show the difference.

Levels are floating-point numbers from 0 to 255, as the pipeline computed them. Rounding
to 8 bits would hide differences below one level, and a subtraction of unsigned bytes
would wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

import numpy as np
from msgspec.structs import replace

from harness.core.comparison import Comparison, Picture
from harness.core.errors import SpecError
from harness.measure.compare import compare

PEAK: Final = 255.0
WINDOW: Final = 11
"""Side of the window of `ssim`, in pixels: 3.5 standard deviations of 1.5 pixels to
each side."""

GAP_PX: Final = 4
MOST: Final = 256
"""Largest factor by which a shown difference is multiplied. A difference of 1 of 255 is
then full scale."""

_AXES = 3
_CHANNELS = 3
_MAGENTA = (255, 0, 255)
Reader = Callable[[np.ndarray], object]


def compare_pictures(
    *,
    expected: np.ndarray,
    actual: np.ndarray,
    floor_rms: float | None = None,
    read: Reader | None = None,
) -> Comparison:
    """Compare one picture with another.

    Args:
        expected: Picture of the reference, ``[height, width, 3]``, floating point, 0 to
            255.
        actual: Picture of the candidate, likewise.
        floor_rms: Rms of the reference's own float32 error, in levels.
        read: Function that gets a uint8 picture and returns what it shows; None for no
            reader.

    Raises:
        SpecError: Both have the same shape, which is not the shape of a picture.

    """
    measured = compare(expected=expected, actual=actual, floor_rms=floor_rms)
    if expected.shape != actual.shape:
        return measured
    if expected.ndim != _AXES or expected.shape[-1] != _CHANNELS:
        msg = f"A picture is [height, width, 3], got {list(expected.shape)}."
        raise SpecError(msg)
    if expected.size == 0:
        return measured
    finite = bool(np.isfinite(expected).all() and np.isfinite(actual).all())
    flip, by = perceptual(expected, actual) if finite else (None, "not finite")
    mean_abs = psnr_db = math.nan
    if finite:
        error = np.subtract(actual, expected, dtype=np.float64)
        mean_abs, rms = float(np.mean(np.abs(error))), measured.rms
        psnr_db = 20.0 * math.log10(PEAK / rms) if rms else math.inf
    picture = Picture(
        expected_peak=_peak(expected),
        actual_peak=_peak(actual),
        expected_spread=_spread(expected),
        actual_spread=_spread(actual),
        mean_abs=mean_abs,
        psnr_db=psnr_db,
        ssim=ssim(expected, actual) if finite else math.nan,
        perceptual=flip,
        perceptual_by=by,
        # A picture with numbers that are not finite is read too, because a suite may
        # allow them.
        expected_read=str(read(eight_bits(expected))) if read else "",
        actual_read=str(read(eight_bits(actual))) if read else "",
    )
    return replace(measured, picture=picture)


def _peak(picture: np.ndarray) -> float:
    """Return the largest finite level; NaN if there is none."""
    finite = picture[np.isfinite(picture)]
    return float(finite.max()) if finite.size else math.nan


def _spread(picture: np.ndarray) -> float:
    """Return the largest difference of two finite levels of one channel, or NaN."""
    finite = np.isfinite(picture)
    if not finite.any():
        return math.nan
    levels = picture.astype(np.float64)
    most = levels.max(axis=(0, 1), initial=-math.inf, where=finite)
    least = levels.min(axis=(0, 1), initial=math.inf, where=finite)
    return float(np.max(most - least))


def ssim(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return structural similarity (Wang et al. 2004); NaN below one window."""
    from skimage.metrics import structural_similarity  # late, as below

    if min(expected.shape[:2]) < WINDOW:
        return math.nan
    return float(
        structural_similarity(
            expected.astype(np.float64),
            actual.astype(np.float64),
            data_range=PEAK,
            channel_axis=-1,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
    )


def perceptual(expected: np.ndarray, actual: np.ndarray) -> tuple[float | None, str]:
    """Return the mean of FLIP (Andersson et al. 2020), and the package's name."""
    try:
        from flip_evaluator import evaluate
    except ImportError:
        return None, "not measured, flip-evaluator is not installed"
    unit = [
        np.clip(picture / PEAK, 0.0, 1.0).astype(np.float32)
        for picture in (expected, actual)
    ]
    mean = evaluate(*unit, "LDR", applyMagma=False)[1]
    return float(mean), f"FLIP {version('flip-evaluator')}"


def eight_bits(picture: np.ndarray) -> np.ndarray:
    """Return a picture for a screen, in uint8; numbers that are not finite become 0."""
    finite = np.nan_to_num(picture, nan=0.0, posinf=PEAK, neginf=0.0)
    return np.clip(np.rint(finite), 0, PEAK).astype(np.uint8)


def side_by_side(expected: np.ndarray, actual: np.ndarray) -> tuple[np.ndarray, float]:
    """Return reference, candidate and their difference as one picture.

    The difference is amplified by the power of two, at most `MOST`, that makes its
    largest value closest to full scale.

    Args:
        expected: Picture of the reference, ``[height, width, 3]``, 0 to 255.
        actual: Picture of the candidate, of the same shape.

    Returns:
        The picture, uint8 ``[height, 3 * width + 2 * GAP_PX, 3]``, with numbers that
        are not finite in magenta; and the factor of the difference.

    """
    with np.errstate(invalid="ignore"):
        gap = np.abs(actual.astype(np.float64) - expected)
    amplify = 1.0
    largest = float(np.max(gap, initial=0.0, where=np.isfinite(gap)))
    while largest > 0.0 and amplify < MOST and largest * amplify * 2 <= PEAK:
        amplify *= 2.0
    white = np.full((expected.shape[0], GAP_PX, 3), PEAK, np.uint8)
    shown = [_shown(expected), white, _shown(actual), white, _shown(gap * amplify)]
    return np.hstack(shown), amplify


def _shown(picture: np.ndarray) -> np.ndarray:
    shown = eight_bits(picture)
    shown[~np.isfinite(picture).all(axis=-1)] = _MAGENTA
    return shown


def png(picture: np.ndarray) -> bytes:
    """Return an RGB picture, uint8 ``[height, width, 3]``, as bytes of a PNG file."""
    import cv2  # late: a page of a run needs this module, and draws no picture

    _, encoded = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    return encoded.tobytes()
