"""Say where operators of a graph come from: the module, the call and its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.core.probes import Probe
from harness.runtimes.graph.onnx_graph import made_in, program_value

if TYPE_CHECKING:
    import onnx


def origin_of(nodes: Sequence[onnx.NodeProto], probes: Sequence[Probe]) -> str:
    """Return a sentence about the first of some nodes, and how many there are.

    Args:
        nodes: Of the exported graph; none have no origin, which is empty.
        probes: Of the same graph; without them what the nodes themselves say.

    """
    if not nodes:
        return ""
    value, made = program_value(nodes[0]), set(nodes[0].output)
    probe = next((p for p in probes if p.name == value or p.onnx in made), None)
    where = (probe and probe.module) or made_in(nodes[0]) or nodes[0].name
    called = filter(None, (probe.op, probe.source)) if probe else ()
    what = f" ({', '.join(called)})" if probe else ""
    count = f"{len(nodes)} places" if len(nodes) > 1 else "one place"
    return f"It comes from {where or nodes[0].output[0]}{what}, {count}."
