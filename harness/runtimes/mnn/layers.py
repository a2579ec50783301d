"""Layers with bits of their own: read their weights, round them, and write a plan.

The converter rounds each output channel alone, between its smallest and its largest
weight: ``WeightQuantAndCoding.cpp`` and ``IDSTEncoder.hpp`` of MNN's converter. The
runtime computes with the weights in float32 again: ``ConvolutionCommon.cpp``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.runtimes.mnn import MODEL, RUNTIME, WEIGHTS
from harness.runtimes.mnn.file import StoredLayer, stored
from harness.runtimes.session import Spent

__all__ = [
    "choices",
    "float_weights",
    "plan_text",
    "rounded",
    "spent_on",
    "stored",
    "stored_bytes",
]

_LEAST_SCALE = np.float32(1e-6)
"""Below this scale the converter stores the smallest integer for every weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """The weights of a layer as integers.

    Attributes:
        values: Integers from ``-2 ** (bits - 1)``, int8 ``[channels, weights]``.
        least: Smallest weight of each channel, float32 ``[channels]``.
        scale: Step between two integers of each channel, float32 ``[channels]``.

    """

    values: np.ndarray
    least: np.ndarray
    scale: np.ndarray


def integers_of(weights: np.ndarray, bits: int) -> Integers:
    """Return the integers to which the converter rounds weights.

    `weights` are float32 ``[channels, ...]``, and `bits` is from 2 to 8.
    """
    flat = weights.reshape(len(weights), -1)
    lowest = -(2 ** (bits - 1))
    least = flat.min(axis=1)
    scale = (flat.max(axis=1) - least) / np.float32(2**bits - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = (flat - least[:, None]) / scale[:, None]
    # C rounds halves away from zero, and no step is below zero. The sum is exact in
    # float64 only.
    values = np.floor(steps.astype(np.float64) + 0.5) + lowest
    values[scale <= _LEAST_SCALE] = lowest
    values = np.clip(values, lowest, -lowest - 1).astype(np.int8)
    return Integers(values=values, least=least, scale=scale)


def rounded(weights: np.ndarray, bits: int) -> np.ndarray:
    """Return the weights with which the runtime computes.

    Args:
        weights: Weights of a layer, float32 ``[channels, ...]``.
        bits: Number of bits of an integer, from 2 to 8.

    Returns:
        Weights of the same shape, float32.

    """
    found = integers_of(weights, bits)
    lowest = np.float32(-(2 ** (bits - 1)))
    zero = found.least - lowest * found.scale
    values = found.values.astype(np.float32) * found.scale[:, None] + zero[:, None]
    return values.reshape(weights.shape)


def choices(layer: StoredLayer) -> tuple[int, ...]:
    """Return the numbers of bits that a layer may have: all that the converter has."""
    del layer
    assert RUNTIME.mixed is not None  # noqa: S101  # it is declared with one
    return RUNTIME.mixed.bits


def float_weights(model: Path, layer: StoredLayer) -> np.ndarray:
    """Return a layer's weights in a float32 file, float32 ``[channels, weights]``."""
    count = layer.sizes[0] // np.dtype(np.float32).itemsize
    beside = model.with_name(f"{model.name}{WEIGHTS.removeprefix(MODEL)}")
    offset = layer.begin or 0
    values = np.fromfile(beside, np.float32, count, offset=offset)
    return values.reshape(layer.channels, -1)


def stored_bytes(layer: StoredLayer, bits: int) -> int:
    """Return the bytes that the converter stores for a layer with a number of bits.

    With 32 `bits` the layer stays as it is, in float32.
    """
    if bits == layer.bits:
        return layer.stored_bytes
    weights, *bias = layer.sizes
    count = weights // np.dtype(np.float32).itemsize
    per_channel = count // layer.channels
    # The sizes of both axes are in two bytes each if they fit. The table has each
    # integer once. A channel has its smallest weight and its step in float32.
    axis = 2 if max(per_channel, layer.channels) < 2**16 else 4
    head = 1 + 2 * axis + 1 + 2**bits
    return head + -(-count * bits // 8) + 8 * layer.channels + sum(bias)


def spent_on(layer: StoredLayer, spent: Sequence[Spent]) -> dict[str, float]:
    """Return the seconds of the operators of a layer, by their kinds.

    The times are those of the layer's file, or of one with fewer bits.
    """
    return {one.kind: one.took_s for one in spent if one.name == layer.name}


def plan_text(bits: Mapping[str, int]) -> str:
    """Return the text of a file for the converter's ``--compressionParamsFile``.

    32 bits leave a layer in float32.
    """
    layers = [
        {"opName": name, "weight": [{"name": name, "bits": number % 32}]}
        for name, number in bits.items()
    ]
    algorithm = {"type": "QUANTIZE", "quantParams": {"layer": layers}}
    # Without `forGuide` the converter also reads ranges of activations from the file.
    plan = {"version": "0.0.0", "forGuide": True, "algo": [algorithm]}
    return json.dumps(plan, indent=1) + "\n"
