"""An ONNX graph's own values as probes, where no PyTorch program is the reference."""

from __future__ import annotations

from pathlib import Path

import onnx

from harness.core.probes import Kind, Probe
from harness.measure.align import GraphValue
from harness.runtimes.graph.onnx_graph import graph_values, module_scope

_MOVES = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad"),
        *("Reshape", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose"),
        *("Unsqueeze", "Where"),
    }
)


def probes_of_file(path: Path) -> tuple[Probe, ...]:
    """Return a probe for each value that hangs on the graph's inputs.

    Where nodes are named by scopes, what leaves a scope is what computes, as in a
    module-by-module reference: runtimes fuse what is inside. Elsewhere every operator
    that does more than move numbers.
    """
    nodes = onnx.load(path, load_external_data=False).graph.node
    made = {name: node for node in nodes for name in node.output}
    values = [v for v in graph_values(path, module_scope) if not v.is_constant]
    scoped = any(value.origin for value in values)
    nearest: dict[str, tuple[str, ...]] = {}
    probes = []
    for position, value in enumerate(values):
        node = made[value.name]
        kind = _kind(value, node, scoped=scoped)
        before = dict.fromkeys(p for name in node.input for p in nearest.get(name, ()))
        computes = kind is Kind.COMPUTE
        nearest[value.name] = (value.name,) if computes else tuple(before)
        probes.append(
            Probe(
                name=value.name,
                position=position,
                kind=kind,
                op=node.op_type,
                module=value.origin.replace("/", "."),
                source="",
                onnx=value.name,
                parents=tuple(before),
            )
        )
    return tuple(probes)


def _kind(value: GraphValue, node: onnx.NodeProto, *, scoped: bool) -> Kind:
    if value.repeats:
        return Kind.IDENTITY
    if node.op_type in _MOVES:
        return Kind.MOVE
    inside = scoped and not value.is_output
    if inside and value.origin and set(value.used_by) <= {value.origin}:
        return Kind.IDENTITY
    return Kind.COMPUTE
