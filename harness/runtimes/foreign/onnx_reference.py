"""The stages of an ONNX file without a PyTorch model.

The reference is the file itself, or another file that the suite names, such as the file
before an optimiser rewrote it. Values of one name are compared then.

They run in a child process. ONNX Runtime runs the graph with every rewrite off, and the
value of each node is recorded. There is no float64 run to measure noise floors with, so
tolerances can only bound the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from msgspec import structs

from harness.core.case import (
    ANOTHER_FILE,
    ITSELF,
    Component,
    Device,
    ExportSettings,
    Group,
    Sample,
)
from harness.core.entry import Entry, check_artifact
from harness.core.errors import RefusedError, StageError, first_line
from harness.core.foreign_files import bring, check_whole
from harness.core.onnx_header import read_header
from harness.core.outcome import Outcome
from harness.core.probes import Probe, ValueKind, load_probes, save_probes
from harness.engine import tasks
from harness.engine.deployed import Reading
from harness.engine.export_files import MODEL, PROBES
from harness.engine.host import report_progress
from harness.engine.store import Store
from harness.measure.align import MASKED, GraphValue, wanted_values
from harness.measure.float16 import Loss, scan
from harness.measure.name_map import Names, as_given, match
from harness.measure.named_arrays import Run
from harness.measure.trace import OUTPUT, Trace, TraceWriter, load_inputs, open_trace
from harness.runtimes.graph.onnx_graph import graph_values, makers_of, module_scope
from harness.runtimes.onnxruntime.session import OPTIMISATION, open_session
from harness.runtimes.pytorch.stages import Stages
from harness.runtimes.session import Session
from harness.runtimes.session import open_session as open_deployed

_MOVES = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad"),
        *("Reshape", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose"),
        *("Unsqueeze", "Where"),
    }
)

_EXPECTED_BYTES = 2**20
"""Expected size of a value that was not seen yet, to cut a large graph for memory."""


def prepare_given(
    root: Path,
    component: Component,
    settings: ExportSettings,
    groups: Sequence[Group],
    device: Device,
) -> dict[str, float]:
    """Draw inputs, store the file and record its own run; return seconds by stage.

    Raises:
        StageError: ONNX Runtime refuses the file, or its outputs do not repeat.

    """
    work = _Work(Store(root=root), component, settings, device)
    for group in groups:
        work.graph(group)
        work.references(group)
    return work.took_s


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
    sizes = {probe.name: _EXPECTED_BYTES for probe in probes}
    has = as_given(component, Names.load(file.parent))
    outputs = [spec.name for spec in has.outputs]

    def traces() -> Iterator[Trace]:
        for reading in readings:
            report_progress("running", component.name, f"values of {reading.sample}")
            with TemporaryDirectory() as folder:
                writer = TraceWriter(Path(folder))
                feeds = load_inputs(reading.inputs, component)
                session.watch(feeds, sizes, partial(_keep, writer))
                writer.close({})
                yield open_trace(Path(folder))

    with open_deployed(backend, file, _plain(device), outputs) as session:
        return scan(probes, traces())


def _keep(writer: TraceWriter, name: str, value: np.ndarray) -> None:
    """Write a value; one with numbers beyond `MASKED` is a mask."""
    floating = value.dtype.kind == "f" and value.size > 0
    is_mask = floating and bool((np.abs(value) > MASKED).any())
    writer.add(name, value, is_mask=is_mask)


def _plain(device: Device) -> Device:
    return Device(
        threads=device.threads, device=device.device, hints=((OPTIMISATION, 0),)
    )


class _Work(Stages):
    """The stages of a file that is its own reference."""

    def graph(self, group: Group) -> Entry:
        """Return the file in the store, with its names and its own values."""
        before = self.component.source.path
        foreign = self.component.foreign
        path = before if foreign is None or foreign.onnx is None else foreign.onnx

        def build(folder: Path) -> Mapping[str, object]:
            header = read_header(path)
            names = match(self.component, path.name, header.inputs, header.outputs)
            check_whole(path, "onnx", self.component.name)
            bring(path, "onnx", folder, MODEL)
            probes = probes_of_file(before)
            if path != before:
                probes = _found_in(folder / MODEL, probes, names)
            by = ITSELF if path == before else ANOTHER_FILE
            structs.replace(names, by=by).save(folder)
            save_probes(probes, folder / PROBES)
            return {}

        return self.made(tasks.GRAPH, build, *self.graph_of(group))

    def record(
        self, group: Group, sample: Sample, inputs: Entry, folder: Path
    ) -> Mapping[str, object]:
        """Record the values of the file's nodes, with every rewrite off."""
        self.say("recording", f"float32, {sample.id}")
        graph = self.graph(group)
        feeds = load_inputs(inputs, self.component)
        found = wanted_values(load_probes(graph.file(PROBES))) if sample.layers else {}
        wanted = [probe.name for probe in found.values()]
        with self._session(graph) as session:
            try:
                one, two = session.run(feeds), session.run(feeds)
            except StageError as error:
                if error.outcome is not Outcome.RUN:
                    raise
                raise RefusedError(
                    str(error), why=first_line(error), outcome=error.outcome
                ) from error
            writer = TraceWriter(folder)
            for spec in self.component.outputs:
                made = one[spec.name]
                if not np.array_equal(made, two[spec.name], equal_nan=True):
                    msg = (
                        f"{self.component.name} is random: two runs on the same "
                        f"inputs differ in {spec.name!r}, so it can be no reference."
                    )
                    raise StageError(msg, outcome=Outcome.REFERENCE)
                writer.add(OUTPUT + spec.name, made)
            if wanted:
                sizes = dict.fromkeys(wanted, _EXPECTED_BYTES)
                session.watch(feeds, sizes, partial(_keep, writer))
        return {"values": writer.close({}), "rewrite_max_abs": 0.0}

    @contextmanager
    def opened(self, group: Group) -> Iterator[Run]:
        """Open the file in a session."""
        with self._session(self.graph(group)) as session:
            yield session.run

    def _session(self, graph: Entry) -> AbstractContextManager[Session]:
        check_artifact(graph)
        path, foreign = graph.file(MODEL), self.component.foreign
        if foreign is not None and foreign.onnx not in {
            None,
            self.component.source.path,
        }:
            path = self.component.source.path
            check_whole(path, "onnx", self.component.name)
        outputs = [spec.name for spec in self.component.outputs]
        return open_session(path, _plain(self.device), outputs)


def _found_in(path: Path, probes: Sequence[Probe], names: Names) -> tuple[Probe, ...]:
    """Return the probes of another file, each with the value of its name here.

    An output has the name that the suite gives it.
    """
    graph = onnx.load(path, load_external_data=False).graph
    here = {known: name for name, known in names.compared.items()}
    made = {name: name for node in graph.node for name in node.output if name}
    return tuple(
        replace(probe, onnx=here.get(probe.name) or made.get(probe.name, ""))
        for probe in probes
    )


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
