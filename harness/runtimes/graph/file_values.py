"""The values of an ONNX file's nodes: which there are, and what float16 loses of them.

ONNX Runtime runs the file with every rewrite off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from harness.core.case import Component, Device
from harness.core.probes import Probe, ValueKind
from harness.engine.deployed import Reading
from harness.engine.host import report_progress
from harness.measure.align import MASKED, GraphValue
from harness.measure.float16 import Loss, scan
from harness.measure.name_map import Names, as_given
from harness.measure.trace import Trace, TraceWriter, load_inputs, open_trace
from harness.runtimes.graph.onnx_graph import graph_values, makers_of, module_scope
from harness.runtimes.onnxruntime.session import OPTIMISATION
from harness.runtimes.session import open_session

_MOVES = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad"),
        *("Reshape", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose"),
        *("Unsqueeze", "Where"),
    }
)

EXPECTED_BYTES = 2**20
"""Expected size of a value that was not seen yet, to cut a large graph for memory."""


def losses_in(
    component: Component,
    device: Device,
    backend: str,
    file: Path,
    readings: Sequence[Reading],
) -> tuple[Loss, ...]:
    """Return what float16 would lose of the values of a file's nodes, in order.

    The file runs with every rewrite off, on the inputs of each sample.

    Raises:
        StageError: ONNX Runtime refuses the file, or a run of it.

    """
    probes = [
        p for p in probes_of_file(file, whole=True) if p.kind is ValueKind.COMPUTE
    ]
    sizes = {probe.name: EXPECTED_BYTES for probe in probes}
    has = as_given(component, Names.load(file.parent))
    outputs = [spec.name for spec in has.outputs]

    def traces() -> Iterator[Trace]:
        for reading in readings:
            report_progress("running", component.name, f"values of {reading.sample}")
            with TemporaryDirectory() as folder:
                writer = TraceWriter(Path(folder))
                feeds = load_inputs(reading.inputs, component)
                session.watch(feeds, sizes, partial(keep, writer))
                writer.close({})
                yield open_trace(Path(folder))

    with open_session(backend, file, plain(device), outputs) as session:
        return scan(probes, traces())


def probes_of_file(path: Path, *, whole: bool = False) -> tuple[Probe, ...]:
    """Return a probe for each value that depends on the graph's inputs.

    Where nodes are named by scopes, a value counts as computed if it leaves a scope, as
    in a module-by-module reference: runtimes fuse the operators inside. Elsewhere, or
    with `whole`, the value of every operator counts that does more than move numbers.
    """
    made = makers_of(onnx.load(path, load_external_data=False).graph)
    values = [v for v in graph_values(path, module_scope) if not v.is_constant]
    scoped = not whole and any(value.origin for value in values)
    nearest: dict[str, tuple[str, ...]] = {}
    probes = []
    for position, value in enumerate(values):
        node = made[value.name]
        kind = _kind(value, node, scoped=scoped)
        before = dict.fromkeys(p for name in node.input for p in nearest.get(name, ()))
        computes = kind is ValueKind.COMPUTE
        nearest[value.name] = (value.name,) if computes else tuple(before)
        probes.append(
            Probe(
                name=value.name,
                position=position,
                kind=kind,
                op=node.op_type,
                module=value.origin.replace("/", "."),
                onnx=value.name,
                parents=tuple(before),
            )
        )
    return tuple(probes)


def _kind(value: GraphValue, node: onnx.NodeProto, *, scoped: bool) -> ValueKind:
    if value.repeats:
        return ValueKind.IDENTITY
    if node.op_type in _MOVES:
        return ValueKind.MOVE
    inside = scoped and not value.is_output
    if inside and value.origin and set(value.used_by) <= {value.origin}:
        return ValueKind.IDENTITY
    return ValueKind.COMPUTE


def keep(writer: TraceWriter, name: str, value: np.ndarray) -> None:
    """Write a value; one with numbers beyond `MASKED` is a mask."""
    floating = value.dtype.kind == "f" and value.size > 0
    is_mask = floating and bool((np.abs(value) > MASKED).any())
    writer.add(name, value, is_mask=is_mask)


def plain(device: Device) -> Device:
    """Return a device on which ONNX Runtime rewrites nothing."""
    return Device(
        threads=device.threads, device=device.device, hints=((OPTIMISATION, 0),)
    )
