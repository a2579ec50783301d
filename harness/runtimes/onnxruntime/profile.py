"""ONNX Runtime's own profile: the time of each node of the optimised graph."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from harness.runtimes.session import Spent

OPTIMISED = "optimised.onnx"
_KERNEL = "_kernel_time"
_HOPS = 4
"""Largest number of nodes between a value and the one with an exported name.

They change its layout, or fuse operators.
"""


def read_profile(profile: Path, optimised: Path) -> list[Spent]:
    """Return the time of each node, in order of execution.

    Args:
        profile: Path of the events that ONNX Runtime wrote.
        optimised: Path of the graph that ran, which has the values of each node.

    """
    graph = onnx.load(optimised, load_external_data=False).graph
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    makes = {node.name: tuple(leading_to(node, readers)) for node in graph.node}
    took: dict[str, tuple[str, list[float]]] = {}
    for event in json.loads(profile.read_text(encoding="utf-8")):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL):
            op = event["args"].get("op_name", "")
            _, seen = took.setdefault(name.removesuffix(_KERNEL), (op, []))
            seen.append(event["dur"] / 1e6)
    return [
        Spent(values=makes.get(node, (node,)), op=op, took_s=statistics.median(seen))
        for node, (op, seen) in took.items()
    ]


def leading_to(
    node: onnx.NodeProto, readers: Mapping[str, Sequence[onnx.NodeProto]]
) -> Iterator[str]:
    """Yield the values of a node, then the values computed from them, nearest first.

    An optimiser gives another name to a value in another layout; the value that the
    exporter named is a step or two further.
    """
    wave = [name for name in node.output if name]
    seen: set[str] = set()
    for _ in range(_HOPS):
        yield from wave
        seen.update(wave)
        wave = [
            name
            for value in wave
            for reader in readers.get(value, ())
            for name in reader.output
            if name and name not in seen
        ]
