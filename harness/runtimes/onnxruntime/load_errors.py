"""Why ONNX Runtime refuses a file: the operator that it lacks, its place, and a fix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import onnx

from harness.core.errors import first_line
from harness.core.onnx_ports import opset_of
from harness.core.probes import Probe
from harness.runtimes.graph.onnx_graph import origin_of, types_of
from harness.runtimes.graph.opset import another_opset

_LACKED: Final = (
    (
        re.compile(
            r"Could not find an implementation for (?P<op>\S+)\(\d+\) "
            r"node with name '(?P<node>[^']*)'"
        ),
        "{provider} has no kernel for {op}{of}.",
    ),
    (
        re.compile(
            r"Provider type for (?P<op>\S+) node with name '(?P<node>[^']*)' is not set"
        ),
        "{provider} has no kernel for {op} as it is used here, and no other takes it.",
    ),
    (
        re.compile(
            r"Type 'tensor\(\w+\)' of input parameter \(.*?\) "
            r"of operator \((?P<op>\w+)\) in node \((?P<node>.*?)\) is invalid"
        ),
        "opset {opset} has no {op}{of}.",
    ),
    (
        re.compile(
            r"\(\"(?P<node>[^\"]*)\", (?P<op>\S+), .*No Op registered for \S+ with "
            r"domain_version of \d+"
        ),
        "opset {opset} has no operator {op}.",
    ),
    (
        re.compile(r"(?P<op>[^\s:]+:\S+?)\(-?\d+\) is (?P<node>)not a registered"),
        "it knows no operator {op}.",
    ),
)
"""ONNX Runtime's messages about an operator, each with the message of this project."""

_NEWER: Final = (
    (
        re.compile(r"Opset (\d+) is under development.* is till opset (\d+)"),
        (
            "it is of opset {0}, and the newest that this runtime takes is {1}. Export "
            "it with `opset` = {1} or less, or install a newer onnxruntime."
        ),
    ),
    (
        re.compile(r"Unsupported model IR version: (\d+), max supported \D*(\d+)"),
        (
            "it is of IR version {0}, and the newest that this runtime takes is {1}. "
            "Save it with `ir_version` = {1} or less, or install a newer onnxruntime."
        ),
    ),
)

_FLOAT32: Final = "float32"
_NAMES: Final = {
    number: {"DOUBLE": "float64", "FLOAT": _FLOAT32}.get(name, name.lower())
    for name, number in onnx.TensorProto.DataType.items()
}
"""ONNX's number of a type to the type's name in a suite."""
_NARROW: Final = (
    "Most operators are made for float32 alone: compute that line in float32, or "
    "rewrite it."
)
_ANEW: Final = "Another exporter or opset, or a rewrite of that line, may avoid it."
_INVALID: Final = "INVALID_GRAPH"


def why_refused(
    error: Exception, model: onnx.ModelProto, probes: Sequence[Probe], provider: str
) -> str:
    """Return the cause of ONNX Runtime's exception, and what to do about it.

    `model` is the session's, or the whole model that it is a part of. `probes` are
    those of the exported graph, and may be empty.
    """
    text = str(error)
    for pattern, newer in _NEWER:
        if found := pattern.search(text):
            return newer.format(*found.groups())
    if _INVALID in text and (why := another_opset(model)):
        return why
    for pattern, lacked in _LACKED:
        if found := pattern.search(text):
            return _lacked(lacked, found, model, probes, provider)
    return f"{first_line(error)}."


def _lacked(
    words: str,
    found: re.Match[str],
    model: onnx.ModelProto,
    probes: Sequence[Probe],
    provider: str,
) -> str:
    """Return which operator the runtime lacks, its origin, and how to avoid it."""
    kinds = _kinds(model)
    nodes = _nodes(model, found["op"], found["node"]) or _written_out(model, kinds)
    kind = kinds[nodes[0].output[0]] if nodes else ""
    alike = [node for node in nodes if kinds[node.output[0]] == kind]
    said = words.format(
        provider=provider,
        op=found["op"],
        of=f" of {kind}" if kind else "",
        opset=opset_of(model),
    )
    way_out = _ANEW if kind in {"", _FLOAT32} else _NARROW
    return " ".join(filter(None, (said, origin_of(alike, probes), way_out)))


def _nodes(model: onnx.ModelProto, called: str, name: str) -> list[onnx.NodeProto]:
    """Return the nodes of an operator, such as ``domain:Name``; the named one first."""
    domain, _, operator = called.rpartition(":")
    nodes = [
        node
        for node in model.graph.node
        if (node.op_type, node.domain) == (operator, domain)
    ]
    return sorted(nodes, key=lambda node: node.name != name)


def _written_out(
    model: onnx.ModelProto, kinds: Mapping[str, str]
) -> list[onnx.NodeProto]:
    """Return nodes that may have become an operator that the file does not name.

    ONNX defines some operators by others. Where the runtime has no kernel for such an
    operator, it replaces it by these others. Where nodes of several operators are
    possible, none is returned.
    """
    nodes = [
        node
        for node in model.graph.node
        if not node.domain
        and kinds[node.output[0]] != _FLOAT32
        and _is_defined_by_others(node.op_type, opset_of(model))
    ]
    return nodes if len({node.op_type for node in nodes}) == 1 else []


def _is_defined_by_others(operator: str, opset: int) -> bool:
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _kinds(model: onnx.ModelProto) -> dict[str, str]:
    """Return the first known type of each node's inputs, by the node's first output.

    The type is an empty text where none is known.
    """
    types = types_of(model)
    types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {
        node.output[0]: next(
            (_NAMES.get(types[name], "") for name in node.input if types.get(name)),
            "",
        )
        for node in model.graph.node
    }
