"""The stage that cuts an excerpt out of an exported graph.

It runs in a child process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from harness.core.case import Component
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import Kind, Probe, load_probes, save_probes
from harness.engine.deployed import Reading
from harness.engine.export_files import MODEL, PROBES, PROTO_LIMIT_BYTES, WEIGHTS
from harness.engine.host import report_progress
from harness.measure.align import wanted_values
from harness.measure.name_map import Names
from harness.measure.named_arrays import save_arrays
from harness.measure.trace import OUTPUT, TraceWriter, load_inputs, open_trace
from harness.plugins.explain.excerpt import Spot
from harness.runtimes.graph.cuts import nearest
from harness.runtimes.graph.notes import make_public
from harness.runtimes.graph.onnx_graph import (
    declared,
    known_as,
    makers_of,
    nodes_between,
    read_by,
)
from harness.runtimes.renamed import fed

if TYPE_CHECKING:
    import numpy as np


def cut_excerpt(
    folder: Path,
    component: Component,
    graph: Entry,
    reading: Reading,
    spot: Spot,
) -> Mapping[str, object]:
    """Write the excerpt around a probe to a folder, and return its notes.

    Raises:
        StageError: The graph has no such value, or the value is computed from
            constants alone.

    """
    name = spot.probe
    report_progress("cutting", component.name, name)
    probes = load_probes(graph.file(PROBES))
    target = next((probe for probe in probes if probe.name == name), None)
    if target is None and name in {spec.name for spec in component.outputs}:
        target = _of_output(name, probes)
    if target is None or not target.onnx:
        msg = f"{component.name}: no value of the exported graph carries {name!r}."
        raise StageError(msg, outcome=Outcome.LOAD)
    shown = set(spot.shown) - {name, target.name}
    # An input of the component has its own name in place of a probe's.
    known = {spec.name: spec.name for spec in component.inputs}
    known |= {
        value: probe.name
        for value, probe in wanted_values(probes).items()
        if probe.name in shown
    }
    fed_by = load_inputs(reading.inputs, component)
    if file_names := Names.load(graph.path):
        known.update((own, own) for own in file_names.own_inputs)
        fed_by = fed(file_names, fed_by)
    source = _source(component, graph)
    model = onnx.load(source, load_external_data=False)
    inputs_of = {made: read_by(node) for made, node in makers_of(model.graph).items()}
    begins = nearest(target.onnx, inputs_of, known)
    if not begins:
        msg = f"{component.name}: {name!r} is made of constants alone."
        raise StageError(msg, outcome=Outcome.LOAD)
    trace = open_trace(reading.reference.path)
    given = {f"given_{at}": value for at, value in enumerate(begins)}
    arrays = {
        name: fed_by[value] if value in fed_by else trace[known[value]]
        for name, value in given.items()
    }
    of_trace = target.name if target.name in trace else OUTPUT + name
    expected = trace[of_trace]
    cut = _excerpt(model, target.onnx, {v: k for k, v in given.items()}, arrays)
    cut.graph.output.append(declared(target.onnx, expected))
    used = {name for node in cut.graph.node for name in read_by(node)}
    weights = (tensor for tensor in model.graph.initializer if tensor.name in used)
    cut.graph.initializer.extend(weights)
    make_public(cut)  # a foreign file may have paths of whoever exported it
    onnx.load_external_data_for_model(cut, str(source.parent))
    onnx.save_model(
        cut,
        folder / MODEL,
        save_as_external_data=cut.ByteSize() > PROTO_LIMIT_BYTES,
        location=WEIGHTS,
    )
    save_probes([target], folder / PROBES)
    save_arrays(arrays, folder)
    writer = TraceWriter(folder)
    place = trace.places[of_trace]
    writer.add(OUTPUT + target.onnx, expected, is_mask=place.is_mask)
    writer.add(target.name, expected, is_mask=place.is_mask)
    floor = place.floor_rms
    names = (OUTPUT + target.onnx, target.name)
    writer.close({} if floor is None else dict.fromkeys(names, floor))
    return {
        "given": given,
        "begins": [known[value] for value in begins],
        "nodes": len(cut.graph.node),
        "inputs": [[n, list(a.shape), a.dtype.name] for n, a in arrays.items()],
        "outputs": [[target.onnx, list(expected.shape), expected.dtype.name]],
        "kept": known_as(cut.graph),
    }


def _of_output(name: str, probes: Sequence[Probe]) -> Probe:
    """Return the probe of the value that is an output; a new one if none is."""
    made = Probe(name=name, position=0, kind=Kind.COMPUTE, op="output")
    return replace(wanted_values(probes).get(name, made), onnx=name)


def _source(component: Component, graph: Entry) -> Path:
    """Return the ONNX file to cut from."""
    if component.foreign and component.foreign.onnx is None:
        msg = (
            f"{component.name} is an MNN file of others, which cannot be cut; give the "
            "ONNX file that it was converted from as `onnx`, and it can."
        )
        raise StageError(msg, outcome=Outcome.LOAD)
    return graph.file(MODEL)


def _excerpt(
    model: onnx.ModelProto,
    target: str,
    names: Mapping[str, str],
    arrays: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    """Return the nodes between known values and the target, in order, renamed."""
    needed: set[str] = set()
    for node in nodes_between(makers_of(model.graph), target, names):
        needed.update(node.output)
    cut = onnx.ModelProto()
    cut.ir_version = model.ir_version
    cut.opset_import.extend(model.opset_import)
    cut.functions.extend(model.functions)
    cut.graph.name = model.graph.name
    for node in model.graph.node:
        if needed.isdisjoint(node.output):
            continue
        taken = cut.graph.node.add()
        taken.CopyFrom(node)
        for at, value in enumerate(taken.input):
            taken.input[at] = names.get(value, value)
    cut.graph.input.extend(declared(name, array) for name, array in arrays.items())
    return cut
