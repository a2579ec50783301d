"""Which attributes of an operator's nodes must equal the program's arguments.

Each rule yields an attribute's name, its value in the graph, and its value in the
program. A rule says nothing where the operator was written out in other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx

from harness.runtimes.graph.onnx_graph import nodes_between

if TYPE_CHECKING:
    import numpy as np

_SMALLEST_HALF = 6.2e-5
"""Smallest normal number of float16; a smaller constant has fewer bits there."""


@dataclass(frozen=True, slots=True)
class Part:
    """The nodes that carry one probe, the nearest to its value first.

    Attributes:
        nodes: The nodes.
        constants: Numbers of each small constant, by name.
        rank_of: Returns the number of axes of a value; None where it is unknown.

    """

    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, np.ndarray]
    rank_of: Callable[[str], int | None] = lambda _: None

    def node(self, kinds: Sequence[str]) -> onnx.NodeProto | None:
        """Return the first node of some kinds; None without such a node."""
        return next((node for node in self.nodes if node.op_type in kinds), None)

    def said(self, kinds: Sequence[str], attribute: str, default: object) -> object:
        """Return an attribute of the first node of a kind; None without such a node."""
        node = self.node(kinds)
        return None if node is None else _stated(node, attribute, default)

    def given(self, kinds: Sequence[str], index: int) -> np.ndarray | None:
        """Return the constant input of the first node of a kind; None without one."""
        node = self.node(kinds)
        if node is None or len(node.input) <= index:
            return None
        return self.constants.get(node.input[index])

    def axis(
        self, kinds: Sequence[str], there: object, here: object
    ) -> tuple[object, object]:
        """Return two axes, both counted from the front or both from the back."""
        if not isinstance(there, int | float) or not isinstance(here, int | float):
            return None, None
        if (there < 0) != (here < 0):
            node = self.node(kinds)
            rank = self.rank_of(node.input[0]) if node and node.input else None
            if rank is None:
                return None, None
            there, here = int(there) % rank, int(here) % rank
        return int(there), int(here)

    def scalars(self, kind: str) -> list[float]:
        """Return the constants of one element that nodes of a kind read."""
        return [
            float(self.constants[name].item())
            for node in self.nodes
            if node.op_type == kind
            for name in node.input
            if name in self.constants and self.constants[name].size == 1
        ]


def _stated(node: onnx.NodeProto, attribute: str, default: object) -> object:
    for entry in node.attribute:
        if entry.name == attribute:
            return _plain(onnx.helper.get_attribute_value(entry))
    return default


def _number(value: np.ndarray | None) -> float | None:
    return None if value is None or value.size != 1 else value.item()


def _rounded(
    value: np.ndarray | None, here: object
) -> tuple[float | None, float | None]:
    """Return a constant's number, and the program's as that dtype holds it.

    Both are None where the dtype does not hold the program's number.
    """
    number = _number(value)
    if value is None or number is None or not isinstance(here, int | float):
        return None, None
    if value.dtype.itemsize > _HALF or value.dtype.kind in "iub":
        return number, here
    held = float(value.dtype.type(here))
    fits = math.isfinite(held) and (here == 0 or abs(here) >= _SMALLEST_HALF)
    return (number, held) if fits else (None, None)


_HALF = 2
"""Bytes of a number in float16."""


Found = Iterator[tuple[str, object, object]]
"""An attribute's name, its value in the graph, and in the program; None if unstated."""

Rule = Callable[[Part, Mapping[str, Any]], Found]


_NORMS = (
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
    *("BatchNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
    "SkipLayerNormalization",
)


def _epsilon(part: Part, told: Mapping[str, Any]) -> Found:
    """Yield the epsilon of a norm, also of one that is written out."""
    there = part.said(_NORMS, "epsilon", 1e-5)
    if there is not None:
        yield "epsilon", there, told.get("eps")
        return
    rooted = {n.input[0] for n in part.nodes if n.op_type in {"Sqrt", "Pow"}}
    added = [
        part.constants[name]
        for node in part.nodes
        if node.op_type == "Add" and node.output[0] in rooted
        for name in node.input
        if name in part.constants and part.constants[name].size == 1
    ]
    if len(added) == 1:
        yield "epsilon", *_rounded(added[0], told.get("eps"))


def _layer_norm(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("LayerNormalization",)
    yield from _epsilon(part, told)
    if (shape := told.get("normalized_shape")) is not None:
        axis = part.said(kinds, "axis", -1)
        yield "axis", *part.axis(kinds, axis, -len(shape))


def _batch_norm(part: Part, told: Mapping[str, Any]) -> Found:
    yield from _epsilon(part, told)
    yield "training mode", part.said(("BatchNormalization",), "training_mode", 0), 0


def _group_norm(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("InstanceNormalization", "GroupNormalization")
    yield "epsilon", part.said(kinds, "epsilon", 1e-5), told.get("eps")
    groups = part.said(("GroupNormalization",), "num_groups", None)
    if groups is None:
        groups = _reshaped_groups(part)
    yield "groups", groups, told.get("num_groups")


def _reshaped_groups(part: Part) -> object:
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


def _convolution(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("Conv", "ConvTranspose")
    yield "groups", part.said(kinds, "group", 1), told.get("groups")
    for name, key in (("strides", "stride"), ("dilations", "dilation")):
        there = part.said(kinds, name, None)
        yield name, there, _repeated(told.get(key), there)
    yield from _padding(part, kinds, told)
    outer = part.said(("ConvTranspose",), "output_padding", None)
    if told.get("transposed") or "output_padding" in told:
        here = _repeated(told.get("output_padding"), outer)
        yield "output padding", outer, here


PADDED = "padded before"
"""Key of how much the operator in front pads, from the last axis on. It is empty if
that operator pads nothing or has a value of its own, and None if it is not known."""


def _padding(part: Part, kinds: Sequence[str], told: Mapping[str, Any]) -> Found:
    pads: object = part.said(kinds, "pads", None)
    padding = told.get("padding")
    padding = [int(padding)] if isinstance(padding, int | float) else padding
    automatic = part.said(kinds, "auto_pad", "NOTSET")
    if automatic in {"SAME_UPPER", "SAME_LOWER"} and isinstance(padding, list):
        pads = _pads_of(part, kinds, str(automatic))
        if pads is None:  # they depend on the size of the picture
            yield "auto_pad", automatic, f"padding {padding}"
            return
    mode = part.said(("Pad",), "mode", "constant")
    inside = isinstance(pads, list) and any(pads)
    own = padding == "same" or (isinstance(padding, list) and any(padding))
    if mode is not None and own and not inside:
        # A separate node has the padding and its fill value. Where the program's
        # operator does not pad, such a node is of an operator before it.
        yield "padding's mode", mode, "constant"
        return
    if not isinstance(pads, list) or not isinstance(padding, list):
        return
    half = len(pads) // 2
    # A pool may have rounded its size up by its pads, and a transposed convolution
    # takes its pads away: only a convolution has a padding in front folded in.
    before = told.get(PADDED) if part.node(("Conv",)) and "Conv" in kinds else None
    if mode is not None or before is None:
        yield "padding", pads[:half], _repeated(padding, pads[:half])
        return
    own_pads = list(_repeated(padding, pads[:half]))  # type: ignore[call-overload]  # a list
    if len(own_pads) != half:
        return
    due = _folded(before, own_pads)
    if pads[:half] == pads[half:] and due[:half] == due[half:]:
        pads, due = pads[:half], due[:half]  # both sides alike, as PyTorch says it
    yield "padding", pads, due


def _pads_of(part: Part, kinds: Sequence[str], automatic: str) -> list[int] | None:
    """Return the padding that makes the output as large as the input; None if unknown.

    It is known where the kernel moves by one place at a time.
    """
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


def _folded(before: Sequence[int], own: Sequence[int]) -> list[int]:
    """Return pads of a convolution that a padding in front of it was folded into."""
    axes = len(own)
    sides = [*before, *[0] * (2 * axes - len(before))]
    begin, end = sides[0 : 2 * axes : 2][::-1], sides[1 : 2 * axes : 2][::-1]
    return [one + more for one, more in zip([*begin, *end], [*own] * 2, strict=True)]


def _pool(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("AveragePool", "MaxPool")
    kernel = part.said(kinds, "kernel_shape", None)
    size = _repeated(told.get("kernel_size"), kernel)
    yield "kernel", kernel, size
    strides = part.said(kinds, "strides", None)
    yield "strides", strides, _repeated(told.get("stride"), strides) or size
    dilations = part.said(kinds, "dilations", None)
    yield "dilations", dilations, _repeated(told.get("dilation"), dilations)
    yield from _padding(part, kinds, told)
    if part.node(("Pad",)) is None:
        pads = part.said(kinds, "pads", None)
        if isinstance(pads, list) and any(pads):
            counted = part.said(("AveragePool",), "count_include_pad", 0)
            yield "count_include_pad", counted, _flag(told.get("count_include_pad"))
        yield (
            "ceil_mode",
            part.said(kinds, "ceil_mode", 0),
            _flag(told.get("ceil_mode")),
        )


def _flag(value: object) -> object:
    """Return 0 or 1, as ONNX writes a flag of PyTorch's."""
    return None if value is None else int(bool(value))


def _repeated(value: object, there: object) -> object:
    """Return a setting for every axis where PyTorch has one number for all."""
    if not isinstance(there, list):
        return value
    if isinstance(value, list) and len(value) == 1:
        return value * len(there)
    if isinstance(value, int | float):
        return [int(value)] * len(there)
    return value


def _along(*kinds: str) -> Rule:
    """Return the rule of operators with one axis."""

    def rule(part: Part, told: Mapping[str, Any]) -> Found:
        there = part.said(kinds, "axis", -1 if kinds[0].endswith("oftmax") else 0)
        yield "axis", *part.axis(kinds, there, told.get("dim"))

    return rule


def _numbers(*pairs: tuple[str, str, float], kinds: Sequence[str]) -> Rule:
    """Return the rule of an operator with numbers.

    Each of `pairs` is the name in ONNX, in PyTorch, and ONNX's default.
    """

    def rule(part: Part, told: Mapping[str, Any]) -> Found:
        for there, here, default in pairs:
            yield there, part.said(kinds, there, default), told.get(here)

    return rule


def _hard_sigmoid(part: Part, _told: Mapping[str, Any]) -> Found:
    kinds = ("HardSigmoid",)
    yield "alpha", part.said(kinds, "alpha", 0.2), 1 / 6
    yield "beta", part.said(kinds, "beta", 0.5), 0.5


def _clip(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("Clip",)
    low, high = (
        told.get("min", told.get("min_val")),
        told.get("max", told.get("max_val")),
    )
    # Before opset 11 the two bounds were attributes.
    for name, index, here in (("min", 1, low), ("max", 2, high)):
        stated = part.said(kinds, name, None)
        if stated is None:
            yield name, *_rounded(part.given(kinds, index), here)
        else:
            yield name, stated, here


def _cumulate(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("CumSum",)
    yield "axis", *part.axis(kinds, _number(part.given(kinds, 1)), told.get("dim"))
    yield "exclusive", part.said(kinds, "exclusive", 0), 0
    yield "reverse", part.said(kinds, "reverse", 0), 0


_REDUCES = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")


def _reduce(part: Part, told: Mapping[str, Any]) -> Found:
    dims = told.get("dim")
    here = dims if isinstance(dims, list) else [dims]
    there = part.said(_REDUCES, "axes", None)
    if there is None and (axes := part.given(_REDUCES, 1)) is not None:
        there = axes.reshape(-1).tolist()
    if isinstance(there, list) and len(there) == len(here):
        pairs = [part.axis(_REDUCES, *both) for both in zip(there, here, strict=True)]
        if not any(None in pair for pair in pairs):
            theirs, ours = zip(*pairs, strict=True)
            yield "axes", sorted(theirs), sorted(ours)
    if part.nodes and part.nodes[0].op_type in _REDUCES:
        kept = part.said(_REDUCES, "keepdims", 1)
        yield "keepdims", kept, _flag(told.get("keepdim"))


def _choose(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("ArgMax", "ArgMin")
    yield "axis", *part.axis(kinds, part.said(kinds, "axis", 0), told.get("dim"))
    yield "select_last_index", part.said(kinds, "select_last_index", 0), 0


def _top(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("TopK",)
    yield "axis", *part.axis(kinds, part.said(kinds, "axis", -1), told.get("dim", -1))
    yield "largest", part.said(kinds, "largest", 1), _flag(told.get("largest", 1))


def _shuffle(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("DepthToSpace",)
    yield "mode", part.said(kinds, "mode", "DCR"), "CRD"
    yield "block", part.said(kinds, "blocksize", None), told.get("upscale_factor")


def _triangle(upper: int) -> Rule:
    def rule(part: Part, told: Mapping[str, Any]) -> Found:
        kinds = ("Trilu",)
        yield "upper", part.said(kinds, "upper", 1), upper
        yield "diagonal", _number(part.given(kinds, 1)), told.get("diagonal")

    return rule


_PADS = {"replicate": "edge", "circular": "wrap"}


def _pad(part: Part, told: Mapping[str, Any]) -> Found:
    mode = told.get("mode")
    if isinstance(mode, str):
        yield (
            "padding's mode",
            part.said(("Pad",), "mode", "constant"),
            _PADS.get(mode, mode),
        )


def _grid(part: Part, told: Mapping[str, Any]) -> Found:
    kinds = ("GridSample",)
    borders, told_border = ("zeros", "border", "reflection"), told.get("padding_mode")
    if isinstance(told_border, int | float):
        yield (
            "padding_mode",
            part.said(kinds, "padding_mode", "zeros"),
            borders[int(told_border)],
        )
    corners = part.said(kinds, "align_corners", 0)
    yield "align_corners", corners, _flag(told.get("align_corners"))


def _gru(part: Part, _told: Mapping[str, Any]) -> Found:
    yield "linear_before_reset", part.said(("GRU",), "linear_before_reset", 0), 1


def _with_constant(kind: str, argument: str, name: str) -> Rule:
    """Return the rule of an operator with a number for its second operand.

    It says nothing unless one node of that kind, with one constant, makes the value.
    """

    def rule(part: Part, told: Mapping[str, Any]) -> Found:
        last = part.nodes[0] if part.nodes else None
        if last is None or last.op_type != kind or told.get("alpha", 1) != 1:
            return
        known = [part.constants[name] for name in last.input if name in part.constants]
        if len(known) == 1:
            yield name, *_rounded(known[0], told.get(argument))

    return rule


def _gelu(part: Part, told: Mapping[str, Any]) -> Found:
    said = part.said(("Gelu",), "approximate", "none")
    if said is None:
        # The nodes begin with the last one; an operator before this may have a Tanh.
        kinds = [n.op_type for n in part.nodes if n.op_type in {"Tanh", "Erf"}]
        said = {"Tanh": "tanh", "Erf": "none"}.get("".join(kinds[:1]), "unknown")
    yield "GELU's form", said, told.get("approximate", "none")


def _attention(part: Part, told: Mapping[str, Any]) -> Found:
    yield "axis of softmax", part.said(("Softmax",), "axis", -1), -1
    scale = told.get("scale")
    factors = _scores(part).scalars("Mul")
    # Exporters multiply query and key by the root of the scale, or one by all of it.
    if isinstance(scale, float) and factors:
        yield "scale", math.prod(factors), scale


def _scores(part: Part) -> Part:
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
    return Part(list(kept.values()), part.constants)


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

    def __call__(self, part: Part, told: Mapping[str, Any]) -> Found:
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


EPSILON = "epsilon"
"""Name of the rule of a norm of which only the epsilon is known."""

RULES: dict[str, Rule] = {
    EPSILON: _epsilon,
    "layer_norm": _layer_norm,
    "native_layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "native_group_norm": _group_norm,
    "instance_norm": _epsilon,
    "rms_norm": _epsilon,
    "batch_norm": _batch_norm,
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose2d"), _convolution
    ),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _pool),
    **dict.fromkeys(("softmax", "_softmax"), _along("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _along("LogSoftmax")),
    "cat": _along("Concat"),
    "glu": _along("Split"),
    "gelu": _gelu,
    "leaky_relu": _numbers(("alpha", "negative_slope", 0.01), kinds=("LeakyRelu",)),
    "elu": _numbers(("alpha", "alpha", 1.0), kinds=("Elu",)),
    "celu": _numbers(("alpha", "alpha", 1.0), kinds=("Celu",)),
    "hardsigmoid": _hard_sigmoid,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh", "relu6"), _clip),
    "cumsum": _cumulate,
    **dict.fromkeys(("mean", "sum", "amax", "amin", "prod"), _reduce),
    **dict.fromkeys(("argmax", "argmin"), _choose),
    "topk": _top,
    "pixel_shuffle": _shuffle,
    "triu": _triangle(1),
    "tril": _triangle(0),
    "pad": _pad,
    "grid_sampler": _grid,
    "gru": _gru,
    "add": _with_constant("Add", "other", "constant"),
    "mul": _with_constant("Mul", "other", "constant"),
    "sub": _with_constant("Sub", "other", "constant"),
    "div": _with_constant("Div", "other", "constant"),
    "pow": _with_constant("Pow", "exponent", "exponent"),
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
