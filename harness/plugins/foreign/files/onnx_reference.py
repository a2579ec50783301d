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

import numpy as np
import onnx
from msgspec import structs

from harness.core.case import (
    ANOTHER_FILE,
    ITSELF,
    Component,
    Device,
    ExportSettings,
    Sample,
)
from harness.core.entry import Entry, check_artifact
from harness.core.errors import RefusedError, StageError, first_line
from harness.core.groups import Group
from harness.core.onnx_header import read_header
from harness.core.outcome import Outcome
from harness.core.probes import Probe, load_probes, save_probes
from harness.engine import tasks
from harness.engine.export_files import MODEL, PROBES
from harness.engine.store import Store
from harness.measure.align import wanted_values
from harness.measure.name_map import Names
from harness.measure.named_arrays import Run
from harness.measure.trace import OUTPUT, TraceWriter, load_inputs
from harness.plugins.foreign.files.beside import bring, check_whole
from harness.plugins.foreign.files.names import match
from harness.runtimes.graph.file_values import (
    EXPECTED_BYTES,
    keep,
    plain,
    probes_of_file,
)
from harness.runtimes.onnxruntime.session import open_session
from harness.runtimes.pytorch.stages import Stages
from harness.runtimes.session import Session


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
                sizes = dict.fromkeys(wanted, EXPECTED_BYTES)
                session.watch(feeds, sizes, partial(keep, writer))
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
        return open_session(path, plain(self.device), outputs)


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
