"""Stages of an ONNX file without a PyTorch model: the file is its own reference.

Runs in a child process. ONNX Runtime runs the graph with every rewrite off, and what
each node makes is recorded. No run in float64 exists to measure noise floors by, so
tolerances can only be of the numbers themselves.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.core.case import ITSELF, Component, Device, ExportSettings, Sample
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.foreign_files import bring, check_whole
from harness.core.groups import Group, smallest
from harness.core.onnx_header import read_header
from harness.core.outcome import Outcome
from harness.core.probes import load_probes, save_probes
from harness.engine.export_files import MODEL, PROBES
from harness.engine.host import report_progress
from harness.engine.keys import asked_key, inputs_key, onnx_key, reference_key
from harness.engine.store import Store
from harness.measure.align import MASKED, wanted_values
from harness.measure.name_map import match
from harness.measure.trace import OUTPUT, TraceWriter, load_inputs, save_inputs
from harness.recipes.inputs import draw
from harness.runtimes.foreign.probes import probes_of_file
from harness.runtimes.onnxruntime.session import OPTIMISATION, open_session
from harness.runtimes.pytorch.contract import ask
from harness.runtimes.session import Session

_EXPECTED_BYTES = 2**20
"""Of a value that nobody has seen yet, when a large graph is cut to fit memory."""


def prepare_given(
    root: Path,
    component: Component,
    settings: ExportSettings,
    groups: Sequence[Group],
    device: Device,
) -> dict[str, float]:
    """Draw inputs, take the file and record its own run; return seconds taken.

    Raises:
        StageError: ONNX Runtime refuses the file, or gives two answers.

    """
    start = time.perf_counter()
    work = _Work(Store(root=root), component, settings, device)
    for group in groups:
        work.graph(group)
        for sample in group.samples:
            work.reference(group, sample)
        if group.samples:
            work.ask(group)
    return {"reference": time.perf_counter() - start}


class _Work:
    """One file's stages, each made once."""

    def __init__(
        self,
        store: Store,
        component: Component,
        settings: ExportSettings,
        device: Device,
    ) -> None:
        self._store = store
        self._component = component
        self._settings = settings
        self._device = device

    def graph(self, group: Group) -> Entry:
        """Return the file in the store, with its names and its own values."""
        path = self._component.source.path

        def build(folder: Path) -> Mapping[str, object]:
            header = read_header(path)
            names = match(self._component, path.name, header.inputs, header.outputs)
            check_whole(path, "onnx", self._component.name)
            bring(path, "onnx", folder, MODEL)
            replace(names, by=ITSELF).save(folder)
            save_probes(probes_of_file(folder / MODEL), folder / PROBES)
            return {}

        return self._store.make("onnx", self._graph_key(group), build)

    def inputs(self, sample: Sample) -> Entry:
        """Return a sample's arrays."""

        def build(folder: Path) -> Mapping[str, object]:
            save_inputs(draw(self._component, sample), folder)
            return {}

        return self._store.make("inputs", inputs_key(self._component, sample), build)

    def reference(self, group: Group, sample: Sample) -> Entry:
        """Return what the file itself makes of a sample."""
        inputs, graph = self.inputs(sample), self.graph(group)

        def build(folder: Path) -> Mapping[str, object]:
            name = self._component.name
            report_progress("recording", name, f"float32, {sample.id}")
            feeds = load_inputs(inputs, self._component)
            wanted = wanted_values(load_probes(graph.file(PROBES)))
            return self._record(
                graph.file(MODEL), feeds, wanted if sample.layers else (), folder
            )

        key = reference_key(
            self._graph_key(group), inputs, self._device, layers=sample.layers
        )
        return self._store.make("reference", key, build)

    def ask(self, group: Group) -> Entry:
        """Return which inputs matter to the file itself."""
        sizes, graph = smallest(group), self.graph(group)

        def build(folder: Path) -> Mapping[str, object]:
            with self._opened(graph.file(MODEL)) as session:
                return ask(session.run, self._component, sizes, folder)

        key = asked_key(self._component, sizes, self._device)
        return self._store.make("asked", key, build)

    def _opened(self, model: Path) -> AbstractContextManager[Session]:
        """Open the file with every rewrite off."""
        plain = Device(
            threads=self._device.threads,
            device=self._device.device,
            hints=((OPTIMISATION, 0),),
        )
        return open_session(model, plain, [s.name for s in self._component.outputs])

    def _graph_key(self, group: Group) -> dict[str, object]:
        return onnx_key(self._component, self._settings, dict(group.shapes))

    def _record(
        self,
        model: Path,
        feeds: Mapping[str, np.ndarray],
        wanted: Collection[str],
        folder: Path,
    ) -> dict[str, object]:
        outputs = [spec.name for spec in self._component.outputs]
        writer = TraceWriter(folder)
        with self._opened(model) as session:
            one, two = session.run(feeds), session.run(feeds)
            for name in outputs:
                if not np.array_equal(one[name], two[name], equal_nan=True):
                    msg = (
                        f"{self._component.name} is random: two runs on the same "
                        f"inputs differ in {name!r}, so it can be no reference."
                    )
                    raise StageError(msg, outcome=Outcome.REFERENCE)
                writer.add(OUTPUT + name, one[name])
            sizes = dict.fromkeys(wanted, _EXPECTED_BYTES)

            def record(name: str, value: np.ndarray) -> None:
                floating = value.dtype.kind == "f" and value.size > 0
                is_mask = floating and bool((np.abs(value) > MASKED).any())
                writer.add(name, value, is_mask=is_mask)

            if wanted:
                session.watch(feeds, sizes, record)
        return {"values": writer.close({}), "rewrite_max_abs": 0.0}
