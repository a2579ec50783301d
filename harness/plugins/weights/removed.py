"""Find the operators of a program that its exporter took for nothing and left out.

Their readers read past them. onnxscript's optimiser takes a constant for 0 or 1 if it
is within 1e-8 of it, and so it leaves out the 1e-15 that guards a division.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.probes import Probe, ValueKind
from harness.core.text import operator
from harness.runtimes.graph.onnx_graph import (
    makers_of,
    nodes_of,
    program_value,
    value_names,
)

if TYPE_CHECKING:
    import onnx

_RULE = "pkg.onnxscript.rewriter.rule_name"
"""Note of a node that a rule of onnxscript made: it does the work of several."""


@dataclass(frozen=True, slots=True)
class Removed:
    """An operator that a graph lacks, and an operator that reads past it."""

    probe: Probe
    reader: Probe

    @property
    def words(self) -> str:
        """The operator and its constants: ``add (other = 1e-15)``."""
        constants = [
            f"{name} = {value}"
            for name, value in self.probe.settings
            if isinstance(value, float)
        ]
        shown = f" ({', '.join(constants)})" if constants else ""
        return f"{operator(self.probe.op)}{shown}"


def removed_operators(
    probes: Sequence[Probe], graph: onnx.GraphProto
) -> Iterator[Removed]:
    """Yield each operator that a graph of dynamo's lacks, with the one that reads past.

    No node was made for it, no rule put it into another one, and where its reader had
    its value, the reader has the value that it was computed from.
    """
    noted = {program_value(node) for node in graph.node}
    if not noted - {""}:  # the graph does not say what its nodes were made for
        return
    makers = makers_of(graph)
    there = {*makers, *(value.name for value in graph.input)}
    values = {n: value for n, value in value_names(probes).items() if value in there}
    named = {probe.name: probe for probe in probes}
    gone = {
        probe.name
        for probe in probes
        if probe.name not in values and probe.name not in noted
    }
    for reader in probes:
        if reader.name not in values:
            continue
        past = [_past(name, named, gone) for _, name in reader.arguments]
        if not any(left_out for left_out, _ in past):
            continue
        nodes = nodes_of(reader, makers, values)
        if not all(_is_plain(node, reader) for node in nodes):
            continue
        read = Counter(name for node in nodes for name in node.input)
        read.subtract(values.get(name, name) for left_out, name in past if not left_out)
        for left_out, name in past:
            if read[values.get(name, name)] > 0:
                yield from (Removed(probe, reader) for probe in left_out)


def _is_plain(node: onnx.NodeProto, reader: Probe) -> bool:
    """Whether a node was made for one operator, and no rule or tool made it of many."""
    ruled = any(entry.key == _RULE for entry in node.metadata_props)
    return program_value(node) == reader.name and not ruled


def _past(
    name: str, named: dict[str, Probe], gone: set[str]
) -> tuple[list[Probe], str]:
    """Return the computing operators behind a value that a graph lacks, and their own.

    Each computes from one value; identities are passed over.
    """
    left_out: list[Probe] = []
    while name in gone:
        probe = named[name]
        given = [
            value
            for _, value in probe.arguments
            if value not in named or named[value].kind is not ValueKind.CONSTANT
            if "." not in value  # as the name of a parameter has
        ]
        if len(given) != 1 or probe.kind not in {ValueKind.COMPUTE, ValueKind.IDENTITY}:
            return [], name
        left_out += [probe] if probe.kind is ValueKind.COMPUTE else []
        (name,) = given
    return left_out, name
