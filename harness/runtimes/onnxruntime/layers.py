"""Layers with a precision of their own: their weights, their rounding, and a plan.

``int8-weights`` rounds each weight matrix with one scale, between equal limits on both
sides of zero: ``quantize_data`` in ``quant_utils.py`` of ONNX Runtime's tool. What the
product reads is rounded to 8 bits as it runs, by ``DynamicQuantizeLinear``. Its flag
``--half`` stores weights in float16, also those of convolutions, and the runtime widens
them to float32 when it loads the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from harness.core.rounding import FLOAT, HALF
from harness.runtimes.onnxruntime import HALVE, KEEP, RUNTIME
from harness.runtimes.session import Spent

_LAYERS = {"MatMul", "Gemm", "Conv"}
_MOST_INPUT = np.float32(255)
_ROUNDS_INPUTS = "DynamicQuantizeLinear"
_SCALE_BYTES = 5
"""A scale in float32 and a zero of 8 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLayer:
    """A matrix product or a convolution whose weights a plan rounds.

    Attributes:
        name: Name of the value that it makes; ``--keep`` and ``--half`` take such
            names.
        weights: The weights, as the file has them.
        is_product: Whether it is a matrix product, which may have integers.
        has_rows: Whether its weights lie as PyTorch has them, each output's together.
        count: Number of weights; 0 if an earlier layer stores them.

    """

    name: str
    weights: onnx.TensorProto
    is_product: bool
    has_rows: bool
    count: int


def stored(path: Path) -> list[WeightLayer]:
    """Return the layers of a float32 file whose weights a plan may round."""
    return layers_of(onnx.load(path, load_external_data=False).graph)


def layers_of(graph: onnx.GraphProto) -> list[WeightLayer]:
    """Return the layers of a graph in float32; see `stored`."""
    tensors = {one.name: one for one in graph.initializer if _is_float(one)}
    layers: list[WeightLayer] = []
    known: set[str] = set()
    for node in graph.node:
        settings = {one.name: one for one in node.attribute}
        if node.op_type not in _LAYERS or node.input[1] not in tensors:
            continue
        # The tool makes a Gemm a MatMul and an Add; others it leaves as they are.
        plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
        if any(
            onnx.helper.get_attribute_value(settings[name]) != usual
            for name, usual in plain.items()
            if name in settings
        ):
            continue
        weights, is_product = tensors[node.input[1]], node.op_type != "Conv"
        has_rows = "transB" in settings and settings["transB"].i == 1
        layers.append(
            WeightLayer(
                name=node.output[0],
                weights=weights,
                is_product=is_product,
                has_rows=has_rows or not is_product,
                count=0 if weights.name in known else math.prod(weights.dims),
            )
        )
        known.add(weights.name)
    return layers


def choices(layer: WeightLayer) -> tuple[int, ...]:
    """Return the numbers of bits that a layer may have; a convolution has no integers.

    ONNX Runtime's CPU provider has no convolution of signed integers.
    """
    assert RUNTIME.mixed is not None  # noqa: S101  # it is declared with one
    return tuple(b for b in RUNTIME.mixed.bits if layer.is_product or b >= HALF)


def float_weights(model: Path, layer: WeightLayer) -> np.ndarray:
    """Return the weights of a layer as PyTorch has them, float32 ``[outputs, ...]``."""
    values = onnx.numpy_helper.to_array(layer.weights, str(model.parent))
    return np.ascontiguousarray(values if layer.has_rows else values.swapaxes(-1, -2))


def integers_of(weights: np.ndarray, bits: int) -> tuple[np.ndarray, np.float32]:
    """Return the integers to which the tool rounds weights, and their scale.

    `weights` are float32, and `bits` is at most 8.
    """
    most = 2 ** (bits - 1) - 1
    scale = np.float32(np.float64(np.abs(weights).max(initial=0.0)) / most)
    if scale < np.finfo(np.float32).tiny:
        scale = np.float32(1.0)
    values = np.clip((weights / scale).round(), -most - 1, most)
    return values.astype(np.int8), scale


def in_half(weights: np.ndarray) -> np.ndarray:
    """Return weights as ``--half`` stores them, float16; it has no larger numbers."""
    most = np.finfo(np.float16).max
    return np.clip(weights, -most, most).astype(np.float16)


def rounded(weights: np.ndarray, bits: int) -> np.ndarray:
    """Return the weights with which the runtime computes, float32."""
    if bits == HALF:
        return in_half(weights).astype(np.float32)
    values, scale = integers_of(weights, bits)
    return values.astype(np.float32) * scale


def rounded_inputs(values: np.ndarray) -> np.ndarray:
    """Return what a rounded layer reads in the place of float32 values, float32."""
    least, most = values.min(initial=0.0), values.max(initial=0.0)
    scale = (most - least) / _MOST_INPUT or np.float32(1.0)
    zero = (-least / scale).round()
    steps = np.clip((values / scale).round() + zero, 0, _MOST_INPUT)
    return (steps - zero) * scale


def stored_bytes(layer: WeightLayer, bits: int) -> int:
    """Return the bytes that a file has for the weights of a layer."""
    scale = _SCALE_BYTES if layer.count and bits < HALF else 0
    return layer.count * bits // 8 + scale


def spent_on(layer: WeightLayer, spent: Sequence[Spent]) -> dict[str, float]:
    """Return the seconds of the operators of a layer, by their kinds.

    An operator that rounds what several products read counts in equal parts for each.

    The times are those of the layer's file, or of one with fewer bits.
    """
    if not layer.count:  # an earlier layer has these operators
        return {}
    names = {layer.weights.name, f"{layer.weights.name}_quantized"}
    made_by = {one.makes[0]: one for one in spent if one.kind == _ROUNDS_INPUTS}
    found: dict[str, float] = {}
    for one in spent:
        if names.isdisjoint(one.reads):
            continue
        found[one.kind] = found.get(one.kind, 0.0) + one.took_s
        if before := made_by.get(one.reads[0]):
            readers = sum(before.makes[0] in each.reads for each in spent)
            took_s = found.get(before.kind, 0.0) + before.took_s / readers
            found[before.kind] = took_s
    return found


def plan_text(bits: Mapping[str, int]) -> str:
    """Return the flags of ``int8-weights`` that make a plan, each on a line."""
    flags = {KEEP: FLOAT, HALVE: HALF}
    named = {
        flag: ",".join(name for name, number in bits.items() if number == own)
        for flag, own in flags.items()
    }
    return "\n".join(f"{flag}{names}" for flag, names in named.items() if names)


def _is_float(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_type == onnx.TensorProto.FLOAT)
