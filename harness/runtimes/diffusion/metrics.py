"""Metrics of a pair of pictures: each returns an error, 0 for equal pictures.

A package adds a metric under the entry point ``parity.metrics``. The entry is a
function without arguments. It returns the metric, or raises an exception whose message
says what is missing. The metric gets two pictures ``[height, width, 3]``, floating
point, 0 to 255, the reference's first, and returns a number of 0 or more. The number
must grow in proportion to the error, because a picture of four times its limit counts
as broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import torch

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.pipeline import METRIC_GROUP
from harness.measure.pictures import PEAK, perceptual, ssim

CLIP: Final = "openai/clip-vit-base-patch32"

# Of a channel, from 0 to 1, as the preprocessing of openai/CLIP has them.
_MEAN: Final = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
_DEVIATION: Final = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)

Metric = Callable[[np.ndarray, np.ndarray], float]


def metrics_of(names: Iterable[str]) -> dict[str, Metric]:
    """Return metrics by name.

    Raises:
        StageError: A metric's package or weights are missing; the message says which.

    """
    points = {p.name: p for p in metadata.entry_points(group=METRIC_GROUP)}
    found: dict[str, Metric] = {}
    for name in names:
        try:
            made = (_BUILT_IN.get(name) or points[name].load())()
        except Exception as error:  # a metric's own code may raise anything
            from_ = f" of {points[name].value}" if name in points else ""
            msg = f"The metric {name!r}{from_} cannot be used: {error}"
            raise StageError(msg, outcome=Outcome.RUN) from error
        found[name] = partial(_checked, name, made)
    return found


def _checked(
    name: str, metric: Metric, expected: np.ndarray, actual: np.ndarray
) -> float:
    """Return a metric's number as Python's own, which a record can hold.

    Raises:
        StageError: It is negative, or no number.

    """
    try:
        loss = float(metric(expected, actual))
    except (TypeError, ValueError) as error:
        msg = f"The metric {name!r} returned no number: {error}"
        raise StageError(msg, outcome=Outcome.RUN) from error
    if loss < 0.0:
        msg = f"The metric {name!r} returned {loss:g}; an error is 0 or more."
        raise StageError(msg, outcome=Outcome.RUN)
    return loss


def _rms(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the error that PSNR is the logarithm of, in levels."""
    return float(np.sqrt(np.mean(np.subtract(actual, expected, dtype=np.float64) ** 2)))


def _flip() -> Metric:
    if find_spec("flip_evaluator") is None:
        msg = "flip-evaluator is not installed; `pip install .[perceptual]` adds it."
        raise ModuleNotFoundError(msg)

    def flip(expected: np.ndarray, actual: np.ndarray) -> float:
        found, _ = perceptual(expected, actual)
        return math.nan if found is None else found

    return flip


def _lpips() -> Metric:
    """Return LPIPS with AlexNet, whose weights must lie in PyTorch's cache already."""
    import lpips

    folder = torch.hub.get_dir()
    file = "alexnet-owt-7be5be79.pth"
    path = f"{folder}/checkpoints/{file}"
    try:
        torch.load(path, weights_only=True)
    except OSError:
        msg = f"AlexNet's weights are missing; put {file} into {folder}/checkpoints."
        raise FileNotFoundError(msg) from None
    net: Any = lpips.LPIPS(net="alex", verbose=False)

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        with torch.no_grad():
            return float(net(_unit(expected), _unit(actual)))

    return loss


def _clip() -> Metric:
    """Return 1 - cosine of two pictures' CLIP embeddings (Radford et al. 2021).

    It is the image-to-image CLIP score. The weights must lie in the hub's cache.
    """
    from transformers import CLIPVisionModelWithProjection

    try:
        net: Any = CLIPVisionModelWithProjection.from_pretrained(
            CLIP, local_files_only=True
        )
    except OSError:
        msg = f"{CLIP} is not in the cache of huggingface_hub; download it first."
        raise FileNotFoundError(msg) from None
    side = net.config.image_size

    def embedded(picture: np.ndarray) -> torch.Tensor:
        # CLIP's own transform crops to a square, and would not see the borders.
        squeezed = torch.nn.functional.interpolate(
            _unit(picture), size=(side, side), mode="bicubic", antialias=True
        )
        found: torch.Tensor = net((squeezed / 2 + 0.5 - _MEAN) / _DEVIATION)[0]
        return found.double()

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        with torch.no_grad():
            alike = torch.cosine_similarity(embedded(expected), embedded(actual))
        return float((1.0 - alike).clamp(min=0.0))  # a NaN stays one

    return loss


def _unit(picture: np.ndarray) -> torch.Tensor:
    """Return a picture as a batch of one, channels first, from -1 to 1."""
    channels_first = np.ascontiguousarray(picture.transpose(2, 0, 1), np.float32)
    return torch.from_numpy(channels_first / np.float32(PEAK / 2) - 1)[None]


_BUILT_IN: Final[Mapping[str, Callable[[], Metric]]] = {
    "psnr": lambda: _rms,
    "ssim": lambda: lambda expected, actual: 1.0 - ssim(expected, actual),
    "flip": _flip,
    "lpips": _lpips,
    "clip": _clip,
}
