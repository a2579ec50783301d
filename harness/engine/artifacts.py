"""Make what cases need: inputs, graphs, references, deployed files; each once.

Looks in the store first, and sends what is missing to child processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import cast

from harness.core.case import GIVEN, Case, Component, Device, Sample
from harness.core.digest import digest_value
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.groups import Group, sample_groups, smallest
from harness.core.memory import Need
from harness.core.outcome import Outcome
from harness.core.pipeline import Pipeline
from harness.core.runtime import (
    EXACT,
    formats,
    onnx_runtime,
    runs_exported,
    runtime,
)
from harness.engine import export_files, keys, tasks
from harness.engine.deployed import Reading
from harness.engine.excerpt import Spot
from harness.engine.needs import drawing_need
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.engine.worker_pool import Workshop
from harness.recipes import RECIPES
from harness.suite.forecast import (
    CONVERT,
    extent_of,
    file_weights,
    need_of,
    stored_weights,
)


class Makers:
    """Makes what is missing; usable from several threads.

    Args:
        store: Where artifacts are kept.
        workshop: Where stages run.
        native: A native converter, or None for the wheel's.

    """

    def __init__(self, store: Store, workshop: Workshop, native: str | None) -> None:
        self.store = store
        self.workshop = workshop
        self._native = native

    def prepare(
        self,
        case: Case,
        samples: Sequence[Sample],
        took: dict[str, float] | None = None,
    ) -> dict[Sample, Reading]:
        """Return samples' inputs and references, making what is missing."""
        groups = sample_groups(case, samples)
        self._take(case)
        with self.workshop.one_at_a_time(export_id(case)):
            found = self._readings(case, groups)
            if found is None:
                result = self._prepare(case, groups, "export and reference")
                if took is not None:
                    took.update(cast("dict[str, float]", result.value))
                found = self._readings(case, groups)
        if found is None:
            raise _lost(case.component.name)
        return found

    def _prepare(self, case: Case, groups: Sequence[Group], what: str) -> JobResult:
        """Have PyTorch make what is missing, or the file that is its own reference."""
        host = reference_host(case)
        samples = [sample for group in groups for sample in group.samples]
        return self.workshop.job(
            host,
            tasks.PREPARE if host == "torch" else tasks.PREPARE_GIVEN,
            self.store.root,
            case.component,
            case.export,
            groups,
            case.reference,
            subject=case.component.name,
            label=f"{case.component.name}: {what}",
            failure=Outcome.EXPORT,
            need=self.need(case, host, samples or case.samples),
        )

    def _take(self, case: Case) -> None:
        """Have the store hold the converted files that a component takes."""
        converted = case.component.taken.converted if case.component.taken else ()
        for kind, _ in converted:
            owner = formats()[kind]
            own = owner.own_format
            key = keys.converted_key(case.component, kind)
            with self.workshop.one_at_a_time(digest_value(key)):
                if own and self.store.find(kind, key) is None:
                    self.workshop.job(
                        f"{CONVERT}{owner.name}",
                        own.take,
                        self.store.root,
                        case.component,
                        subject=case.component.name,
                        label=f"{case.id}: its {own.title}",
                        failure=Outcome.LOAD,
                    )

    def _readings(
        self, case: Case, groups: tuple[Group, ...]
    ) -> dict[Sample, Reading] | None:
        """Return what the store has, or None unless it has all."""
        readings = {}
        for group in groups:
            graph = keys.onnx_key(case.component, case.export, dict(group.shapes))
            asked = keys.asked_key(case.component, smallest(group), case.reference)
            exported = self.store.find("onnx", graph)
            if exported is None or self.store.find("asked", asked) is None:
                return None
            for sample in group.samples:
                drawn = keys.inputs_key(case.component, sample)
                inputs = self.store.find("inputs", drawn)
                if inputs is None:
                    return None
                recorded = keys.reference_key(
                    graph, inputs, case.reference, layers=sample.layers
                )
                reference = self.store.find("reference", recorded)
                if reference is None:
                    return None
                readings[sample] = Reading(
                    sample=sample.id,
                    inputs=inputs,
                    reference=reference,
                    layers=sample.layers,
                )
        return readings

    def export(self, case: Case, took: dict[str, float] | None = None) -> Entry:
        """Return the graph that serves a case's first sample, without references."""
        group = sample_groups(case, case.samples)[0]
        self._take(case)
        key = keys.onnx_key(case.component, case.export, dict(group.shapes))
        with self.workshop.one_at_a_time(export_id(case)):
            if self.store.find("onnx", key) is None:
                groups = (replace(group, samples=()),)
                result = self._prepare(case, groups, "export")
                if took is not None:
                    took.update(cast("dict[str, float]", result.value))
        return self.found("onnx", key)

    def draw(
        self, pipeline: Pipeline, device: Device, took: dict[str, float]
    ) -> tuple[Entry, Entry]:
        """Return a pipeline's inputs and PyTorch's drawing, making what is missing."""
        drawn = keys.drawing_inputs_key(pipeline)
        with self.workshop.one_at_a_time(digest_value((drawn, asdict(device)))):
            found = self._drawing(drawn, pipeline, device)
            if found is None:
                result = self.workshop.job(
                    "pipeline",
                    tasks.DRAW_REFERENCE,
                    self.store.root,
                    pipeline,
                    device,
                    self.workshop.memory_gib,
                    subject=pipeline.name,
                    label=f"{pipeline.name}: reference",
                    failure=Outcome.REFERENCE,
                    need=drawing_need(pipeline, self.weights),
                )
                took["reference"] = cast("float", result.value)
                found = self._drawing(drawn, pipeline, device)
        if found is None:
            raise _lost(pipeline.name)
        return found

    def _drawing(
        self, drawn: Mapping[str, object], pipeline: Pipeline, device: Device
    ) -> tuple[Entry, Entry] | None:
        inputs = self.store.find("drawing-inputs", drawn)
        if inputs is None:
            return None
        key = keys.drawing_key(pipeline, inputs, device)
        reference = self.store.find("drawing", key)
        return None if reference is None else (inputs, reference)

    def deploy_all(self, case: Case) -> None:
        """Make the deployed file of each of a case's graphs."""
        for group in sample_groups(case, case.samples):
            self.deploy(case, self.graph(case, group))

    def deploy(
        self, case: Case, onnx: Entry, took: dict[str, float] | None = None
    ) -> tuple[Entry, str]:
        """Return the deployed file, making it if it is missing."""
        variant = case.variant
        if not is_made(case):
            declared = runtime(variant.backend)
            if declared.own_format is None:
                return onnx, export_files.MODEL
            key = keys.converted_key(case.component, declared.reads)
            return self.found(declared.reads, key), declared.model
        key = keys.variant_key(onnx, variant, self._native)
        model = runtime(variant.backend).model
        with self.workshop.one_at_a_time(digest_value(key)):
            found = self.store.find(variant.backend, key)
            if found is None:
                result = self.workshop.job(
                    f"{CONVERT}{variant.backend}",
                    tasks.DEPLOY,
                    self.store.root,
                    case.component,
                    variant,
                    onnx,
                    self._native,
                    subject=case.component.name,
                    label=f"{case.id}: conversion",
                    failure=Outcome.CONVERT,
                    need=self.need(case, f"{CONVERT}{variant.backend}", case.samples),
                )
                if took is not None:
                    took["convert"] = cast("float", result.value)
                found = self.found(variant.backend, key)
        return found, model

    def excerpt(self, case: Case, graph: Entry, reading: Reading, spot: Spot) -> Entry:
        """Return one value's part of a graph, cutting it out if it is missing."""
        key = keys.excerpt_key(graph, reading, spot)
        with self.workshop.one_at_a_time(digest_value(key)):
            if self.store.find("excerpt", key) is None:
                self.workshop.job(
                    f"{CONVERT}{case.backend}",
                    tasks.CUT_EXCERPT,
                    self.store.root,
                    case.component,
                    graph,
                    reading,
                    spot,
                    subject=case.component.name,
                    label=f"{case.id}: excerpt at {spot.probe}",
                    failure=Outcome.CONVERT,
                )
        return self.found("excerpt", key)

    def need(self, case: Case, host: str, samples: Sequence[Sample]) -> Need | None:
        """Return the memory that a stage of a case needs; None if it is not known."""
        weights = self.weights(case.component)
        if not weights or not samples:
            return None
        extent = extent_of(case.component, samples, weights)
        return need_of(
            case.component,
            host,
            extent,
            kind=_kind(case, host),
            rewritten=bool(case.export.attention),
        )

    def weights(self, component: Component) -> int:
        """Return the bytes of a component's weights in float32; 0 if not known."""
        if stored := stored_weights(component):
            return stored
        # Somebody's own recipe may do anything when it is built; ours draw weights.
        if component.source.seed is None or component.recipe not in RECIPES:
            return file_weights(component)
        key = keys.weights_key(component)
        with self.workshop.one_at_a_time(digest_value(key)):
            entry = self.store.find("weights", key)
            if entry is None:
                counted = self.workshop.job(
                    "torch",
                    tasks.WEIGH,
                    component,
                    subject=component.name,
                    label=f"{component.name}: counting weights",
                    failure=Outcome.EXPORT,
                ).value
                entry = self.store.make("weights", key, lambda _: {"bytes": counted})
        return int(cast("int", entry.meta["bytes"]))

    def graph(self, case: Case, group: Group) -> Entry:
        """Return a graph that was made before.

        Raises:
            StageError: It is no longer there.

        """
        key = keys.onnx_key(case.component, case.export, dict(group.shapes))
        return self.found("onnx", key)

    def checked(self, case: Case, graph: Entry) -> Mapping[str, object]:
        """Return what a graph holds and says otherwise than PyTorch's module.

        Empty where there is no module, or no graph.
        """
        if reference_host(case) != "torch":
            return {}
        key = keys.checked_key(case.component, graph)
        with self.workshop.one_at_a_time(digest_value(key)):
            if self.store.find("checked", key) is None:
                self.workshop.job(
                    "torch",
                    tasks.CHECK_GRAPH,
                    self.store.root,
                    case.component,
                    case.export,
                    graph,
                    case.reference,
                    subject=case.component.name,
                    label=f"{case.component.name}: weights and attributes",
                    failure=Outcome.EXPORT,
                    need=self.need(case, "torch", case.samples),
                )
        return self.found("checked", key).meta

    def asked(self, case: Case, group: Group) -> Entry:
        """Return what the reference was asked about single inputs.

        Raises:
            StageError: It is no longer there.

        """
        key = keys.asked_key(case.component, smallest(group), case.reference)
        return self.found("asked", key)

    def found(self, kind: str, key: Mapping[str, object]) -> Entry:
        """Return what must be in the store by now.

        Raises:
            StageError: It is not.

        """
        entry = self.store.find(kind, key)
        if entry is None:
            raise _lost(kind)
        return entry


def _lost(what: str) -> StageError:
    msg = (
        f"{what}: the store does not have what was just made for it. Either it was "
        "cleared meanwhile, or the harness's own files were edited; run this again."
    )
    return StageError(msg, outcome=Outcome.LOAD)


def is_made(case: Case) -> bool:
    """Whether a case's file is made from the exported one, or is there already."""
    variant = case.variant
    as_exported = runs_exported(variant.backend, variant.kind)
    return not as_exported and variant.kind != GIVEN


def exact(case: Case) -> bool:
    """Whether a case's file is to hold PyTorch's own weights, in float32."""
    return case.variant.kind in {EXACT, GIVEN}


def reference_host(case: Case) -> str:
    """Return who records a case's reference: ONNX Runtime for a file held to itself."""
    return onnx_runtime().name if case.component.recipe == GIVEN else "torch"


def _kind(case: Case, host: str) -> str:
    """Return which of a host's costs a case has."""
    if host == "torch":
        return case.export.exporter
    beside = case.export.external_data or not host.startswith(CONVERT)
    return case.variant.kind if beside else ""


def export_id(case: Case) -> str:
    """Return what the exports and references of a case are known by."""
    made = (case.component.name, asdict(case.export), asdict(case.reference))
    return digest_value(made)


def native_converter(named: str | None) -> str | None:
    """Return the native ``MNNConvert`` to use: the one named, or one on PATH.

    Raises:
        StageError: One is named and cannot be found.

    """
    if not named:
        return shutil.which("MNNConvert")
    found = shutil.which(named)
    if found is None:
        msg = f"--mnn-convert names {named!r}, which is no program that can be run."
        raise StageError(msg, outcome=Outcome.UNAVAILABLE)
    return found
