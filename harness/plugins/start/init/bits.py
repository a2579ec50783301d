"""The bits that an ONNX file computes in, which decide its first tolerances."""

from __future__ import annotations

from pathlib import Path

from harness.core.onnx_header import HALVES

_QUANTISES = (
    *("QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"),
    *("QLinearConv", "QLinearMatMul", "QLinearAdd", "QGemm", "QAttention"),
    *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulIntegerToFloat"),
    "MatMulNBits",
)
"""Operators that compute with integers of few bits, so a last bit is a whole step."""

_PASSES_ON = ("Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze")
"""Operators that only hand a weight on."""


def computes_in(path: Path) -> str:
    """Return ``int8`` or ``float16`` where a file computes so; empty for float32.

    Weights of few bits that the file turns into float32 before it reads them are the
    same numbers in every runtime, so they do not count.
    """
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    if any(node.op_type in _QUANTISES for node in graph.node):
        return "int8"
    halves = frozenset(HALVES)
    half = {one.name for one in graph.initializer if one.data_type in halves}
    half |= {
        one.name for one in graph.input if one.type.tensor_type.elem_type in halves
    }
    for node in graph.node:
        named = {one.name: one for one in node.attribute}
        if node.op_type == "Constant":
            makes = "value" in named and named["value"].t.data_type in halves
        elif node.op_type == "Cast":
            makes = "to" in named and named["to"].i in halves
        else:
            passes = node.op_type in _PASSES_ON
            makes = passes and bool(half.intersection(node.input))
        if makes:
            half.update(node.output)
    widens = {"Cast", "DequantizeLinear", *_PASSES_ON}
    computes = (node for node in graph.node if node.op_type not in widens)
    return "float16" if any(half.intersection(n.input) for n in computes) else ""
