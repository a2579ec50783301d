"""Metrics of a pair of pictures: each returns an error, 0 for equal pictures.

A package adds a metric under the entry point ``parity.metrics``. The entry is a
function without arguments. It returns the metric, or raises an exception whose message
says what is missing. The metric gets two pictures ``[height, width, 3]``, floating
point, 0 to 255, the reference's first, and returns a number of 0 or more. The number
must grow in proportion to the error, because a picture of four times its limit counts
as broken. Of the built-in metrics in `SQUARED` the root is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from harness.core.end_to_end import SQUARED
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.measure.pictures import PEAK, perceptual, ssim
from harness.plugins.pipelines.case import METRIC_GROUP

CLIP: Final = "openai/clip-vit-base-patch32"
ALEXNET: Final = "alexnet-owt-7be5be79.pth"

# Of a channel, from 0 to 1, as the preprocessing of openai/CLIP has them.
_MEAN: Final = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
_DEVIATION: Final = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)

# All that DreamSim 0.2 reads: its own files, and those of DINO from PyTorch's hub.
DREAMSIM_FILES: Final = (
    "dino_vitb16_pretrain.pth",
    "open_clip_vitb16_pretrain.pth.tar",
    "clip_vitb16_pretrain.pth.tar",
    "ensemble_lora/adapter_config.json",
    "ensemble_lora/adapter_model.*",
    "facebookresearch_dino_main/hubconf.py",
    "checkpoints/dino_vitbase16_pretrain.pth",
)
_DREAMSIM_SIDE: Final = 224

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
            msg = f"The metric {name!r}{from_} cannot be used: {first_line(error)}."
            raise StageError(msg, outcome=Outcome.RUN) from error
        rooted = partial(_root, made) if name in SQUARED else made
        found[name] = partial(_checked, name, rooted)
    return found


def _root(metric: Metric, expected: np.ndarray, actual: np.ndarray) -> float:
    squared = metric(expected, actual)
    # Rounding may put equal pictures a little below 0; a NaN stays one.
    return 0.0 if squared < 0.0 else math.sqrt(squared)


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


def _check_installed(module: str, package: str, extra: str) -> None:
    if find_spec(module) is None:
        msg = f"{package} is not installed; `pip install .[{extra}]` adds it."
        raise ModuleNotFoundError(msg)


def _flip() -> Metric:
    _check_installed("flip_evaluator", "flip-evaluator", "perceptual")

    def flip(expected: np.ndarray, actual: np.ndarray) -> float:
        found, _ = perceptual(expected, actual)
        return math.nan if found is None else found

    return flip


def _lpips() -> Metric:
    """Return LPIPS with AlexNet, whose weights must lie in PyTorch's cache already."""
    _check_installed("lpips", "lpips", "lpips")
    import lpips

    folder = Path(torch.hub.get_dir(), "checkpoints")
    if not (folder / ALEXNET).is_file():  # LPIPS would fetch them
        msg = f"AlexNet's weights are missing; put {ALEXNET} into {folder}."
        raise FileNotFoundError(msg)
    net: Any = lpips.LPIPS(net="alex", verbose=False)

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        with torch.no_grad():
            return float(net(_signed(expected), _signed(actual)))

    return loss


def _dreamsim() -> Metric:
    """Return DreamSim's ensemble (Fu et al. 2023), 1 - cosine of two embeddings.

    All its files must lie in PyTorch's cache already, because the package downloads
    what is missing.
    """
    _check_installed("dreamsim", "dreamsim", "dreamsim")
    from dreamsim import dreamsim

    folder = Path(torch.hub.get_dir())
    missing = [file for file in DREAMSIM_FILES if not any(folder.glob(file))]
    if missing:
        msg = (
            f"{folder} has no {', '.join(missing)}; on a machine with a network "
            f"`dreamsim.dreamsim(device='cpu', cache_dir={str(folder)!r})` fetches them"
        )
        raise FileNotFoundError(msg)
    net, _ = dreamsim(device="cpu", cache_dir=str(folder))

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        with torch.no_grad():
            two = (_resized(each, _DREAMSIM_SIDE) for each in (expected, actual))
            return float(net(*two))

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
        found: torch.Tensor = net((_resized(picture, side) - _MEAN) / _DEVIATION)[0]
        return found.double()

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        with torch.no_grad():
            alike = torch.cosine_similarity(embedded(expected), embedded(actual))
        return float(1.0 - alike)

    return loss


def _resized(picture: np.ndarray, side: int) -> torch.Tensor:
    """Return a square picture as a batch of one, channels first, from 0 to 1."""
    resized = torch.nn.functional.interpolate(
        _signed(picture) / 2 + 0.5, size=(side, side), mode="bicubic", antialias=True
    )
    return resized.clamp(0.0, 1.0)  # as pictures of 8 bits are


def _signed(picture: np.ndarray) -> torch.Tensor:
    """Return a picture as a batch of one, channels first, from -1 to 1."""
    channels_first = np.ascontiguousarray(picture.transpose(2, 0, 1), np.float32)
    return torch.from_numpy(channels_first / np.float32(PEAK / 2) - 1)[None]


_BUILT_IN: Final[Mapping[str, Callable[[], Metric]]] = {
    "psnr": lambda: _rms,
    "ssim": lambda: lambda expected, actual: 1.0 - ssim(expected, actual),
    "flip": _flip,
    "lpips": _lpips,
    "dreamsim": _dreamsim,
    "clip": _clip,
}
