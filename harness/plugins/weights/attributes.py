"""Compare an exported graph's attributes with the program's, without running either.

The nodes that carry a probe are those between its value and its parents' values. A
node's attributes (an epsilon, an axis, a number of groups, a scale) must be equal to
the arguments of the program's operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from harness.core.probes import Probe
from harness.plugins.weights.attribute_rules import EPSILON, PADDED, RULES, ProbeNodes
from harness.plugins.weights.removed import removed_operators
from harness.runtimes.graph.onnx_graph import (
    makers_of,
    nodes_of,
    small_constants,
    value_names,
)

_CLOSE = 1e-6
_LARGEST_CONSTANT = 16
"""Largest number of elements of a constant that is read as a scale or a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One attribute that differs from the program's; `words` has both values."""

    probe: Probe
    name: str
    words: str


def differences(probes: Sequence[Probe], file: Path, graph: Path) -> dict[str, str]:
    """Return a message about each probe whose nodes differ from the program's.

    `file` is the deployed file, whose weights may have fewer bits, and `graph` is the
    exported one, whose attributes are compared.
    """
    return {**fewer_bits(probes, file), **differing_attributes(probes, graph)}


def differing_attributes(probes: Sequence[Probe], path: Path) -> dict[str, str]:
    """Return a message about each probe whose nodes have other attributes.

    What an exporter left out in front of it is an attribute that differs too.
    """
    model = onnx.load(path, load_external_data=False)
    found: dict[str, list[str]] = {}
    for told in attributes_told(probes, model):
        found.setdefault(told.probe.name, []).append(told.words)
    for one in removed_operators(probes, model.graph):
        words = f"the exporter left out {one.words} in front of it"
        found.setdefault(one.reader.name, []).append(words)
    return {name: "; ".join(words) for name, words in found.items()}


def fewer_bits(probes: Sequence[Probe], path: Path) -> dict[str, str]:
    """Return a message about each probe whose nodes read weights of fewer bits.

    `path` is the deployed file; nothing is said of one that is no ONNX file.
    """
    if path.suffix != ".onnx":
        return {}
    graph = onnx.load(path, load_external_data=False).graph
    bits = {
        tensor.name: _BITS[tensor.data_type]
        for tensor in graph.initializer
        if len(tensor.dims) > 1 and tensor.data_type in _BITS
    }
    makers, values = makers_of(graph), value_names(probes)
    found: dict[str, str] = {}
    for probe in probes if bits else ():
        read = [n for node in nodes_of(probe, makers, values) for n in node.input]
        if least := min((bits[name] for name in read if name in bits), default=0):
            found[probe.name] = f"its weights have fewer bits in the file: {least}"
    return found


_BITS = {
    **dict.fromkeys((onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16), 16),
    **dict.fromkeys((onnx.TensorProto.INT8, onnx.TensorProto.UINT8), 8),
    **dict.fromkeys((onnx.TensorProto.INT4, onnx.TensorProto.UINT4), 4),
}
"""Types of numbers with fewer bits than float32."""


def attributes_told(probes: Sequence[Probe], model: onnx.ModelProto) -> Iterator[Told]:
    """Yield each attribute of a graph that differs from the program's argument."""
    constants = small_constants(model.graph, _LARGEST_CONSTANT)
    makers = makers_of(model.graph)
    values = value_names(probes)
    ranks = _Ranks(model)
    rooted = {name for p in probes if _op(p) in {"rsqrt", "sqrt"} for name in p.parents}
    named = {probe.name: probe for probe in probes}
    for probe in probes:
        if probe.name not in values:
            continue
        nodes = nodes_of(probe, makers, values)
        rule = RULES.get(_op(probe))
        settings = {
            **dict(probe.settings),
            PADDED: _padded_before(probe, named, values),
        }
        told = rule(ProbeNodes(nodes, constants, ranks.of), settings) if rule else ()
        for name, there, here in told:
            if there is not None and here is not None and not _equal(there, here):
                # What is added before a root is the epsilon of a norm.
                is_epsilon = name == "constant" and probe.name in rooted
                known = EPSILON if is_epsilon else name
                words = f"{known} is {_short(there)} in the graph, {_short(here)} in"
                yield Told(probe=probe, name=known, words=f"{words} PyTorch")
        for kind in [node.op_type for node in nodes if node.op_type in _RANDOM]:
            words = f"the graph draws random numbers there: {kind}"
            yield Told(probe=probe, name="random", words=words)


def _op(probe: Probe) -> str:
    return probe.op.removeprefix("aten.").partition(".")[0]


def _padded_before(
    probe: Probe, named: Mapping[str, Probe], values: Mapping[str, str]
) -> object:
    """Return how much the operator in front pads, from the last axis on.

    It is empty if that operator pads nothing or has a value of its own in the graph,
    and None if it is not known.
    """
    before = named.get(probe.arguments[0][1]) if probe.arguments else None
    if before is None:
        return [] if probe.arguments else None
    if _op(before) not in {"pad", "constant_pad_nd"} or before.name in values:
        return []
    return dict(before.settings).get("pad")


def left_in_training(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield each Dropout that sets random values to 0, as it does in training."""
    constants = small_constants(graph, 1)
    for node in graph.node:
        modes = [constants[name] for name in node.input[2:3] if name in constants]
        if node.op_type == "Dropout" and any(bool(mode.item()) for mode in modes):
            yield node


class _Ranks:
    """The number of axes of a graph's values, inferred when first asked for."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model

    def of(self, name: str) -> int | None:
        """Return a value's number of axes; None where it cannot be inferred."""
        return self._known.get(name)

    @cached_property
    def _known(self) -> dict[str, int]:
        try:
            graph = onnx.shape_inference.infer_shapes(self._model).graph
        except (onnx.shape_inference.InferenceError, ValueError):
            return {}
        return {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape")
        }


_RANDOM = (
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial"),
)
"""Operators that no graph of a repeatable PyTorch module contains."""


def _equal(one: object, two: object) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        return math.isclose(float(one), float(two), rel_tol=_CLOSE)  # type: ignore[arg-type]  # numbers
    return one == two


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
