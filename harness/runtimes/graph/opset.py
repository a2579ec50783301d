"""Nodes of another opset than the one that their file declares."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import onnx

from harness.core.onnx_ports import opset_of

if TYPE_CHECKING:
    from onnx.defs import OpSchema

ONNX_RUNTIMES_OWN = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that ONNX Runtime takes as ONNX's own in a file of any opset. Its optimiser
writes them."""


def another_opset(model: onnx.ModelProto) -> str:
    """Return what is wrong where a node is not of the file's opset; else nothing.

    A node is of another opset if that opset lacks its operator, one of its attributes,
    or its number of inputs.
    """
    said = opset_of(model)
    for node in _nodes(model.graph.node):
        schemas = _schemas().get(node.op_type, ())
        if node.domain not in {"", "ai.onnx"} or not schemas:
            continue
        if node.op_type in ONNX_RUNTIMES_OWN:
            continue
        there = [schema for schema in schemas if schema.since_version <= said]
        if there and not _lacks(there[-1], node):
            continue
        fitting = [schema for schema in schemas if not _lacks(schema, node)]
        if not fitting:
            continue
        newer = fitting[0].since_version > said
        of = fitting[0] if newer else fitting[-1]
        what = _lacks(there[-1], node) if there else ""
        return _words(node, what, said, _last_of(schemas, of), newer=newer)
    return ""


def _words(
    node: onnx.NodeProto, what: str, said: int, span: tuple[int, int], *, newer: bool
) -> str:
    first, last = span
    name = f"{node.name} ({node.op_type})" if node.name else node.op_type
    of = f"opset {first} or newer" if newer else f"opset {last} or older"
    with_what = f" with {what}" if what and what != _DEPRECATED else ""
    again = of if newer else "one opset for all of its nodes"
    return (
        f"it says that it is of opset {said}, and its node {name}{with_what} is of "
        f"{of}. Export it again with {again}."
    )


_DEPRECATED = "deprecated"


def _lacks(schema: OpSchema, node: onnx.NodeProto) -> str:
    """Return what a node has that a version of its operator lacks."""
    if schema.deprecated:
        return _DEPRECATED
    for one in node.attribute:
        if one.name not in schema.attributes:
            return f"the attribute {one.name}"
    if len(node.input) > schema.max_input:
        return f"{len(node.input)} inputs"
    return ""


def _last_of(schemas: Sequence[OpSchema], of: OpSchema) -> tuple[int, int]:
    """Return the first and the last opset that have a version of an operator."""
    later = [s.since_version for s in schemas if s.since_version > of.since_version]
    return of.since_version, min(later, default=onnx.defs.onnx_opset_version() + 1) - 1


@functools.cache
def _schemas() -> dict[str, list[OpSchema]]:
    """Return each version of ONNX's own operators by name, the oldest first."""
    found: dict[str, list[OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema)
    for versions in found.values():
        versions.sort(key=lambda schema: schema.since_version)
    return found


def _nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for one in node.attribute:
            for graph in (*([one.g] if one.HasField("g") else []), *one.graphs):
                yield from _nodes(graph.node)
