"""Compare an exported graph's attributes with the program's, without running either.

The nodes that carry a probe are those between its value and its parents' values. A
node's attributes (an epsilon, an axis, a number of groups, a scale) must be equal to
the arguments of the program's operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from harness.core.probes import Probe
from harness.measure.align import wanted_values
from harness.runtimes.graph.onnx_graph import (
    makers_of,
    nodes_between,
    small_constants,
)

if TYPE_CHECKING:
    import numpy as np

_CLOSE = 1e-6
_LARGEST_CONSTANT = 16
"""Largest number of elements of a constant that is read as a scale or a shape."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The nodes that carry one probe."""

    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, np.ndarray]

    def said(self, kinds: Sequence[str], attribute: str, default: object) -> object:
        """Return an attribute of the first node of a kind; None without such a node."""
        for node in self.nodes:
            if node.op_type in kinds:
                for entry in node.attribute:
                    if entry.name == attribute:
                        return _plain(onnx.helper.get_attribute_value(entry))
                return default
        return None

    def scalars(self, kind: str) -> list[float]:
        """Return the constants of one element that nodes of a kind read."""
        return [
            float(self.constants[name].item())
            for node in self.nodes
            if node.op_type == kind
            for name in node.input
            if name in self.constants and self.constants[name].size == 1
        ]


Found = Iterator[tuple[str, object, object]]
"""An attribute's name, its value in the graph, and in the program; None if unstated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One attribute that differs from the program's; `words` has both values."""

    probe: Probe
    name: str
    words: str


def differing_attributes(probes: Sequence[Probe], path: Path) -> dict[str, str]:
    """Return a message about each probe whose nodes have other attributes."""
    graph = onnx.load(path, load_external_data=False).graph
    found: dict[str, list[str]] = {}
    for told in attributes_told(probes, graph):
        found.setdefault(told.probe.name, []).append(told.words)
    return {name: "; ".join(words) for name, words in found.items()}


def attributes_told(probes: Sequence[Probe], graph: onnx.GraphProto) -> Iterator[Told]:
    """Yield each attribute of a graph that differs from the program's argument."""
    constants = small_constants(graph, _LARGEST_CONSTANT)
    makers = makers_of(graph)
    values = value_names(probes)
    named = {probe.name: probe for probe in probes}
    for probe in probes:
        if probe.name not in values:
            continue
        nodes = nodes_of(probe, makers, values)
        part = _Part(nodes, constants)
        rule = _RULES.get(_short_name(probe))
        settings = {
            **dict(probe.settings),
            _PADDED: _padded_before(probe, named, values),
        }
        told = rule(part, settings) if rule else ()
        for name, there, here in told:
            if there is not None and here is not None and not _equal(there, here):
                words = f"{name} is {_short(there)} in the graph, {_short(here)} in"
                yield Told(probe=probe, name=name, words=f"{words} PyTorch")
        for kind in [node.op_type for node in nodes if node.op_type in _RANDOM]:
            words = f"the graph draws random numbers there: {kind}"
            yield Told(probe=probe, name="random", words=words)


_PADDED = "padded before"
"""Key of the settings of a padding in front of an operator, or None."""


def _short_name(probe: Probe) -> str:
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
    if _short_name(before) not in {"pad", "constant_pad_nd"} or before.name in values:
        return []
    return dict(before.settings).get("pad")


def of_training(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Yield each node that computes as in training, with a message."""
    constants = small_constants(graph, 1)
    for node in graph.node:
        said = {a.name: a.i for a in node.attribute}
        if node.op_type == "BatchNormalization" and said.get("training_mode"):
            words = "its BatchNormalization takes the statistics of the batch"
        elif node.op_type == "Dropout" and any(
            bool(constants[name].item())
            for name in node.input[2:3]
            if name in constants
        ):
            words = "its Dropout sets random values to 0"
        else:
            continue
        yield node, f"the file was exported in training mode: {words}"


def value_names(probes: Sequence[Probe]) -> dict[str, str]:
    """Return each probe's name to the exported value that carries it."""
    return {probe.name: value for value, probe in wanted_values(probes).items()}


def nodes_of(
    probe: Probe, makers: Mapping[str, onnx.NodeProto], values: Mapping[str, str]
) -> list[onnx.NodeProto]:
    """Return the nodes between a probe's value and its parents', the last first.

    `values` is what `value_names` returns.
    """
    ends = {values[name] for name in probe.parents if name in values}
    # A module's probe has no parents: then any value with a name ends the search.
    ends = ends or set(values.values())
    start = values.get(probe.name, "")
    return list(nodes_between(makers, start, ends)) if start else []


_RANDOM = (
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial"),
)
"""Operators that no graph of a repeatable PyTorch module contains."""


def _layer_norm(part: _Part, told: Mapping[str, Any]) -> Found:
    kinds = ("LayerNormalization",)
    yield "epsilon", part.said(kinds, "epsilon", 1e-5), told.get("eps")
    axis = part.said(kinds, "axis", -1)
    if isinstance(axis, int) and axis < 0:
        yield "axis", axis, -len(told["normalized_shape"])


def _group_norm(part: _Part, told: Mapping[str, Any]) -> Found:
    kinds = ("InstanceNormalization", "GroupNormalization")
    yield "epsilon", part.said(kinds, "epsilon", 1e-5), told.get("eps")
    groups = part.said(("GroupNormalization",), "num_groups", None)
    if groups is None:
        groups = _reshaped_groups(part)
    yield "groups", groups, told.get("num_groups")


def _reshaped_groups(part: _Part) -> object:
    """Return the second size of the Reshape that makes groups of channels."""
    read = {
        name
        for node in part.nodes
        if node.op_type == "InstanceNormalization"
        for name in node.input[:1]
    }
    for node in part.nodes:
        if node.op_type == "Reshape" and node.output[0] in read:
            shape = part.constants.get(node.input[1])
            if shape is not None and shape.size > 1:
                return int(shape[1])
    return None


def _convolution(part: _Part, told: Mapping[str, Any]) -> Found:
    kinds = ("Conv",)
    yield "groups", part.said(kinds, "group", 1), told.get("groups")
    for name, key in (("strides", "stride"), ("dilations", "dilation")):
        there = part.said(kinds, name, None)
        yield name, there, _repeated(told.get(key), there)
    pads: object = part.said(kinds, "pads", None)
    padding = told.get("padding")
    automatic = part.said(kinds, "auto_pad", "NOTSET")
    if automatic in {"SAME_UPPER", "SAME_LOWER"} and isinstance(padding, list):
        made = _pads_of(part, str(automatic))
        if made is None:  # they depend on the size of the picture
            yield "auto_pad", automatic, f"padding {padding}"
            return
        pads = made
    mode = part.said(("Pad",), "mode", "constant")
    inside = isinstance(pads, list) and any(pads)
    own = padding == "same" or (isinstance(padding, list) and any(padding))
    if mode is not None and own and not inside:
        # A separate node has the padding and its fill value. Where the program's
        # operator does not pad, such a node is of an operator before it.
        yield "padding's mode", mode, "constant"
        return
    before = told[_PADDED]
    if not isinstance(pads, list) or not isinstance(padding, list):
        return
    half = len(pads) // 2
    due = _folded(before if isinstance(before, list) else [], padding, half)
    if mode is not None or before is None:  # the padding in front is not known
        pads, due = pads[:half], _folded([], padding, half)[:half]
    if pads[:half] == pads[half:] and due[:half] == due[half:]:
        pads, due = pads[:half], due[:half]  # both sides alike, as PyTorch says it
    yield "padding", pads, due


def _pads_of(part: _Part, automatic: str) -> list[int] | None:
    """Return the padding that makes the output as large as the input; None if unknown.

    It is known where the kernel moves by one place at a time.
    """
    kinds = ("Conv",)
    kernel = part.said(kinds, "kernel_shape", None)
    steps = part.said(kinds, "strides", None) or [1]
    if not isinstance(kernel, list) or not isinstance(steps, list) or max(steps) > 1:
        return None
    told = part.said(kinds, "dilations", None)
    gaps = told if isinstance(told, list) else [1] * len(kernel)
    total = [gap * (size - 1) for gap, size in zip(gaps, kernel, strict=True)]
    small = [one // 2 for one in total]
    large = [one - less for one, less in zip(total, small, strict=True)]
    return [*small, *large] if automatic == "SAME_UPPER" else [*large, *small]


def _folded(before: Sequence[int], padding: object, axes: int) -> list[int]:
    """Return pads of a convolution that a padding in front of it was folded into."""
    own = list(padding) if isinstance(padding, list) else [0]
    own = own * axes if len(own) == 1 else own
    sides = [*before, *[0] * (2 * axes - len(before))]
    begin, end = sides[0 : 2 * axes : 2][::-1], sides[1 : 2 * axes : 2][::-1]
    return [one + more for one, more in zip([*begin, *end], own * 2, strict=True)]


def _first_of_equal(part: _Part, _told: Mapping[str, Any]) -> Found:
    kinds = ("ArgMax", "ArgMin")
    yield "select_last_index", part.said(kinds, "select_last_index", 0), 0


def _repeated(value: object, there: object) -> object:
    """Return a setting for every axis where PyTorch has one number for all."""
    if isinstance(value, list) and len(value) == 1 and isinstance(there, list):
        return value * len(there)
    return value


def _softmax(part: _Part, told: Mapping[str, Any]) -> Found:
    axis, dim = part.said(("Softmax",), "axis", -1), told.get("dim")
    if isinstance(axis, int) and isinstance(dim, int) and (axis < 0) == (dim < 0):
        yield "axis", axis, dim


def _gelu(part: _Part, told: Mapping[str, Any]) -> Found:
    said = part.said(("Gelu",), "approximate", "none")
    if said is None:
        # The nodes begin with the last one; an operator before this may have a Tanh.
        kinds = [n.op_type for n in part.nodes if n.op_type in {"Tanh", "Erf"}]
        said = {"Tanh": "tanh", "Erf": "none"}.get("".join(kinds[:1]), "unknown")
    yield "GELU's form", said, told.get("approximate", "none")


def _attention(part: _Part, told: Mapping[str, Any]) -> Found:
    yield "axis of softmax", part.said(("Softmax",), "axis", -1), -1
    scale = told.get("scale")
    factors = _scores(part).scalars("Mul")
    # Exporters multiply query and key by the root of the scale, or one by all of it.
    if isinstance(scale, float) and factors:
        yield "scale", math.prod(factors), scale


def _scores(part: _Part) -> _Part:
    """Return the nodes that make attention's scores, without those of its bias.

    A bias that is added to the scores may have factors of its own, as T5's positions
    have. The side of an addition that multiplies no matrices is such a bias.
    """
    makers = {name: node for node in part.nodes for name in node.output}
    waiting = [node.input[0] for node in part.nodes if node.op_type == "Softmax"]
    if not waiting:
        return part
    kept: dict[str, onnx.NodeProto] = {}
    while waiting:
        name = waiting.pop()
        if name in kept or name not in makers:
            continue
        kept[name] = makers[name]
        sides = list(makers[name].input)
        if makers[name].op_type == "Add":
            sides = [side for side in sides if _multiplies(makers, side)]
        waiting += sides
    return _Part(list(kept.values()), part.constants)


def _multiplies(makers: Mapping[str, onnx.NodeProto], value: str) -> bool:
    nodes = nodes_between(makers, value, ())
    return any(node.op_type in {"MatMul", "Gemm"} for node in nodes)


@dataclass(frozen=True, slots=True)
class _Resize:
    """What a Resize must say to compute one of PyTorch's operators.

    Attributes:
        mode: ONNX's mode.
        smooth: Whether it smooths a picture that it makes smaller.

    """

    mode: str
    smooth: bool = False

    def __call__(self, part: _Part, told: Mapping[str, Any]) -> Found:
        """Yield each attribute with its values in the graph and in the program."""
        said = partial(part.said, ("Resize", "Upsample"))
        yield "mode", said("mode", "nearest"), self.mode
        if not any(len(n.input) > _OLD for n in part.nodes if n.op_type == "Resize"):
            return  # before opset 11 the node has no further attributes
        places = said("coordinate_transformation_mode", "half_pixel")
        if places == "pytorch_half_pixel":  # it differs where one pixel is made alone
            places = "half_pixel"
        due = "align_corners" if told.get("align_corners") else "half_pixel"
        yield "coordinates", places, "asymmetric" if self.mode == "nearest" else due
        if self.mode == "nearest":
            rounding = said("nearest_mode", "round_prefer_floor")
            yield "rounding", rounding, "floor"
            return
        yield "antialias", said("antialias", 0), int(self.smooth)
        cubic = self.mode == "cubic"
        if cubic:
            factor = -0.5 if self.smooth else -0.75
            yield "the cubic coefficient", said("cubic_coeff_a", -0.75), factor
        if cubic or self.smooth:
            yield "exclude_outside", said("exclude_outside", 0), int(self.smooth)


_OLD = 2
"""Number of inputs of a Resize of opset 10; later ones have more."""


_RULES: dict[str, Callable[[_Part, Mapping[str, Any]], Found]] = {
    "layer_norm": _layer_norm,
    "native_layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "native_group_norm": _group_norm,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "convolution": _convolution,
    "softmax": _softmax,
    "_softmax": _softmax,
    "gelu": _gelu,
    "argmax": _first_of_equal,
    "argmin": _first_of_equal,
    "scaled_dot_product_attention": _attention,
    **{f"upsample_nearest{axes}d": _Resize("nearest") for axes in (1, 2, 3)},
    "upsample_linear1d": _Resize("linear"),
    "upsample_bilinear2d": _Resize("linear"),
    "upsample_trilinear3d": _Resize("linear"),
    "upsample_bicubic2d": _Resize("cubic"),
    "_upsample_bilinear2d_aa": _Resize("linear", smooth=True),
    "_upsample_bicubic2d_aa": _Resize("cubic", smooth=True),
}
"""PyTorch operator to the function that compares its nodes' attributes."""


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value


def _equal(one: object, two: object) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        return math.isclose(float(one), float(two), rel_tol=_CLOSE)  # type: ignore[arg-type]  # numbers
    return one == two


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
