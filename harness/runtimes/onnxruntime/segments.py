"""Split an ONNX graph into pieces that run one after another, or each alone.

This module handles names and protobufs; it reads no weight and runs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    import numpy as np

SEGMENT_BYTES = 256 * 2**20
"""Size of the values read in one segment: few segments, yet little beside a model."""

GIVEN = "//given"
"""Suffix of the name of an input that replaces a value of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive nodes that run as one session.

    Attributes:
        nodes: Nodes of the graph, in order.
        reads: Names of values from earlier segments or of the graph's inputs.
        shows: Names of the wanted values that the segment makes.
        keeps: Names of its values that later segments or the caller need.

    """

    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[str, ...]
    shows: tuple[str, ...]
    keeps: tuple[str, ...]


def cut_model(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return the graph with a new input for the readers of each named value.

    The node that made a value still makes it; its readers read ``NAME`` + `GIVEN`.
    Values that a subgraph reads from outside are not replaced.
    """
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    read: dict[str, None] = {}
    for node in cut.graph.node:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = name + GIVEN
                read[name + GIVEN] = None
    cut.graph.input.extend(onnx.ValueInfoProto(name=name) for name in read)
    return cut


def plan_segments(
    graph: onnx.GraphProto,
    sizes: Mapping[str, int],
    outputs: Sequence[str],
    limit_bytes: int = SEGMENT_BYTES,
) -> list[Segment]:
    """Cut a graph's nodes into runs whose wanted values fit `limit_bytes`.

    A graph with subgraphs is left whole, since subgraphs read outer values by name.
    """
    nested = any(a.g.node or a.graphs for n in graph.node for a in n.attribute)
    cuts: list[list[onnx.NodeProto]] = [[]]
    held = 0
    for node in graph.node:
        size = sum(sizes.get(name, 0) for name in node.output)
        if held and held + size > limit_bytes and not nested:
            cuts.append([])
            held = 0
        cuts[-1].append(node)
        held += size
    weights = {tensor.name for tensor in graph.initializer}
    made_in = {
        name: index
        for index, nodes in enumerate(cuts)
        for node in nodes
        for name in node.output
        if name
    }
    reads: list[dict[str, None]] = [{} for _ in cuts]
    kept = set(outputs)
    for index, nodes in enumerate(cuts):
        for node in nodes:
            for name in node.input:
                if name and name not in weights and made_in.get(name) != index:
                    reads[index][name] = None
                    kept.add(name)
    if len(cuts) == 1:  # only subgraphs may read an outer value
        own = (value.name for value in graph.input)
        reads[0] = {name: None for name in own if name not in weights}
    return [
        Segment(
            nodes=tuple(nodes),
            reads=tuple(reads[index]),
            shows=tuple(n for node in nodes for n in node.output if n in sizes),
            keeps=tuple(n for node in nodes for n in node.output if n in kept),
        )
        for index, nodes in enumerate(cuts)
    ]


def segment_model(
    model: onnx.ModelProto, segment: Segment, live: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """Return the segment as a separate model; weights stay where they are."""
    cut = onnx.ModelProto()
    cut.ir_version = model.ir_version
    cut.opset_import.extend(model.opset_import)
    cut.functions.extend(model.functions)
    used = {name for node in segment.nodes for name in node.input}
    graph = cut.graph
    graph.name = model.graph.name
    graph.node.extend(segment.nodes)
    nested = any(a.g.node for node in segment.nodes for a in node.attribute)
    graph.initializer.extend(
        tensor for tensor in model.graph.initializer if nested or tensor.name in used
    )
    for name in segment.reads:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(live[name].dtype)
        graph.input.append(
            onnx.helper.make_tensor_value_info(name, dtype, [None] * live[name].ndim)
        )
    declared = {value.name: value for value in model.graph.output}
    for name in dict.fromkeys((*segment.shows, *segment.keeps)):
        graph.output.append(declared.get(name) or onnx.ValueInfoProto(name=name))
    return cut
