"""Make a ControlNet's hint, or a starting picture, from a picture file.

This is the classic Canny recipe of the apps that Lvmin Zhang published with ControlNet.
Its results are equal to the bit: it has the same order of steps, interpolation and
rounding. It handles arrays, and no model.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Final

import numpy as np

from harness.core.errors import SpecError, SuiteError
from harness.plugins.pipelines.families import fitted_size

FALL_OFF: Final = 0.825
"""Weight of a residual in guess mode, relative to the next deeper one."""

WHITE: Final = 255
GREY, RGB, RGBA = 1, 3, 4
"""Number of channels of each kind of picture."""


def read_image(path: Path) -> np.ndarray:
    """Read a picture file with 8 bits for each channel, and turn it upright.

    Returns:
        The picture, uint8, in RGB order: ``[height, width]`` if it is grey,
        ``[height, width, 3]``, or ``[height, width, 4]`` if it is transparent
        somewhere; alpha comes last and is not multiplied in.

    Raises:
        SuiteError: There is no such file, or it is no picture, or it has not 8 bits for
            each channel, or it is transparent and must be turned.

    """
    import cv2

    try:
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        msg = f"{path}: cannot read the picture: {reason}; check the path."
        raise SuiteError(msg) from error
    stored = _decode(path, data, cv2.IMREAD_UNCHANGED)
    if stored.dtype != np.uint8:
        msg = (
            f"{path}: the picture is {stored.dtype.name}, and 8 bits a channel are "
            "read; save it with 8, so that how it is rounded is your choice."
        )
        raise SuiteError(msg)
    channels = GREY if stored.ndim == 2 else stored.shape[2]  # noqa: PLR2004  # no channels
    if channels not in {GREY, RGB, RGBA}:
        msg = (
            f"{path}: the picture has {channels} channels; save it as grey, RGB or "
            "RGBA."
        )
        raise SuiteError(msg)
    # "Unchanged" also leaves a picture on its side, as the camera was held. Here it is
    # turned upright, which OpenCV does without alpha only.
    flags = cv2.IMREAD_GRAYSCALE if channels == GREY else cv2.IMREAD_COLOR
    upright = _decode(path, data, flags)
    if channels != RGBA:
        return upright if channels == GREY else upright[..., ::-1].copy()
    if not np.array_equal(upright, stored[..., :RGB]):
        msg = (
            f"{path}: the picture is transparent, and its Exif data say to turn it, "
            "which OpenCV does without its alpha only; save it turned."
        )
        raise SuiteError(msg)
    return np.asarray(cv2.cvtColor(stored, cv2.COLOR_BGRA2RGBA))


def _decode(path: Path, data: np.ndarray, flags: int) -> np.ndarray:
    import cv2

    try:
        image = cv2.imdecode(data, flags) if data.size else None
    except cv2.error as error:  # too large for OpenCV, among others
        reason = str(error).strip()
        msg = f"{path}: OpenCV gave the picture up: {reason}; save it smaller, as PNG."
        raise SuiteError(msg) from error
    if image is None:
        msg = (
            f"{path}: no picture that OpenCV reads is in these {data.size:,} bytes; "
            "is it cut short? Save it as PNG."
        )
        raise SuiteError(msg)
    return np.asarray(image)


def three_channels(image: np.ndarray) -> np.ndarray:
    """Return a picture as uint8 ``[height, width, 3]``, over white if transparent.

    Args:
        image: Picture, uint8 ``[height, width]`` or ``[height, width, 1 | 3 | 4]``.

    Raises:
        SpecError: The array has another shape or dtype.

    >>> three_channels(np.array([[[0, 100, 255, 128]]], dtype=np.uint8)).tolist()
    [[[126, 177, 255]]]
    """
    layers = image[..., np.newaxis] if image.ndim == 2 else image  # noqa: PLR2004  # grey
    if not _is_picture(layers, {GREY, RGB, RGBA}):
        msg = (
            "A picture is uint8 [height, width] or [height, width, 1 | 3 | 4], got "
            f"{image.dtype.name} {list(image.shape)}; `read_image` reads one so."
        )
        raise SpecError(msg)
    if layers.shape[2] == GREY:
        return np.repeat(layers, RGB, axis=2)
    if layers.shape[2] == RGB:
        return layers
    colour = layers[..., :RGB].astype(np.float32)
    alpha = layers[..., RGB:].astype(np.float32) / 255.0
    over = colour * alpha + 255.0 * (1.0 - alpha)
    # The recipe truncates and does not round: where float32 is just below 255, white
    # over white is 254. The edge detector must see the recipe's picture.
    return over.clip(0, WHITE).astype(np.uint8)


def fit(image: np.ndarray, resolution: int) -> np.ndarray:
    """Scale a picture's shorter side to `resolution`, and both to multiples of 64.

    Args:
        image: Picture, uint8 ``[height, width, 3]``.
        resolution: Length of the shorter side, in pixels, before it is rounded.

    Returns:
        The picture, uint8 ``[height, width, 3]``, in the size of `fitted_size`. It is
        enlarged by Lanczos, or reduced by area means. Rounding changes the proportions.

    Raises:
        SpecError: The array is no RGB picture.
        SuiteError: A side would be 0.

    """
    import cv2

    _check_rgb(image)
    height, width = image.shape[:2]
    rows, columns = fitted_size(height, width, resolution)
    # The scale decides, not the sides: 500 px at resolution 500 become 512, and area
    # means still make them, as in the recipe.
    enlarges = resolution > min(height, width)
    how = cv2.INTER_LANCZOS4 if enlarges else cv2.INTER_AREA
    return np.asarray(cv2.resize(image, (columns, rows), interpolation=how))


def canny_hint(
    image: np.ndarray, *, low_threshold: int, high_threshold: int
) -> np.ndarray:
    """Return the edges of a picture, as a Canny ControlNet expects them.

    Args:
        image: Picture, uint8 ``[height, width, 3]``, RGB. It is not made grey: each
            pixel's steepest channel counts.
        low_threshold: An edge goes on along gradients above this, 1 to 255. Along a
            straight step of n levels the gradient is 4 n.
        high_threshold: An edge has a gradient above this somewhere, 1 to 255.

    Returns:
        Edges, float32 ``[3, height, width]``, three equal channels: 1 on an edge, 0
        elsewhere.

    Raises:
        SpecError: The array is no RGB picture.
        SuiteError: The thresholds are not valid for an edge detector.

    """
    import cv2

    _check_rgb(image)
    if not 1 <= low_threshold <= high_threshold <= WHITE:
        msg = (
            "Canny's thresholds go 1 <= low_threshold <= high_threshold <= 255, got "
            f"{low_threshold} and {high_threshold}; 100 and 200 are usual."
        )
        raise SuiteError(msg)
    edges = np.asarray(cv2.Canny(image, low_threshold, high_threshold))
    hint = edges.astype(np.float32) / np.float32(WHITE)
    return np.repeat(hint[np.newaxis], RGB, axis=0)


def residual_scales(
    strength: float, count: int, *, guess_mode: bool
) -> tuple[float, ...]:
    """Return the factor of each ControlNet residual: down blocks first, middle last.

    Args:
        strength: Strength of the whole ControlNet, unitless; 1 is as trained.
        count: Number of residuals; 13 in Stable Diffusion 1.5.
        guess_mode: Whether factors fall off from the middle towards the input. They
            differ from those of diffusers, whose guess mode spaces them from 0.1 to 1.

    Raises:
        SpecError: There is no residual, or the strength is no number.

    >>> residual_scales(2.0, 3, guess_mode=False)
    (2.0, 2.0, 2.0)
    >>> [round(scale, 4) for scale in residual_scales(1.0, 3, guess_mode=True)]
    [0.6806, 0.825, 1.0]
    """
    if count < 1:
        msg = f"A ControlNet has one residual or more, got {count}; count its outputs."
        raise SpecError(msg)
    if not math.isfinite(strength):
        msg = f"strength must be finite, got {strength}; 0 to 2 is usual."
        raise SpecError(msg)
    if not guess_mode:
        return (strength,) * count
    return tuple(strength * FALL_OFF ** (count - 1 - index) for index in range(count))


def _check_rgb(image: np.ndarray) -> None:
    if not _is_picture(image, {RGB}):
        msg = (
            "An RGB picture is uint8 [height, width, 3], got "
            f"{image.dtype.name} {list(image.shape)}; pass it through "
            "`three_channels`."
        )
        raise SpecError(msg)


def _is_picture(image: np.ndarray, channels: Collection[int]) -> bool:
    """Whether an array is uint8 ``[height, width, channels]``, and not empty."""
    if image.dtype != np.uint8 or image.ndim != 3:  # noqa: PLR2004  # as above
        return False
    return image.size > 0 and image.shape[2] in channels
