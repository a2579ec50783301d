"""Make the artifacts of cases once: inputs, graphs, references and deployed files.

This module looks in the store first, and makes missing artifacts in child processes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from msgspec import msgpack

from harness.core.case import Case, Component, Sample
from harness.core.comparison import Comparison
from harness.core.digest import digest_value
from harness.core.entry import Entry
from harness.core.errors import ParityError, SpecError, StageError, StoreError
from harness.core.groups import Group, sample_groups
from harness.core.memory import Need
from harness.core.outcome import Outcome
from harness.core.plugins import declared
from harness.core.received import DamagedError, in_a_clause, read_bytes
from harness.core.record import SELF, Row
from harness.core.record_form import from_columns
from harness.core.rounding import Effects, Trials
from harness.core.runtime import formats, is_made, reference_host, runtime
from harness.engine import export_files, keys, tasks
from harness.engine.deployed import Deployed, Reading
from harness.engine.imports import Imports
from harness.engine.stage import Stage, lost
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool, add_seconds
from harness.recipes import RECIPES
from harness.suite.files import file_reader
from harness.suite.forecast import CONVERT, file_weights, need_of, stored_weights

_NOTHING = Comparison(expected_shape=())


class Artifacts:
    """Make missing artifacts by a pool; usable from several threads."""

    def __init__(
        self, store: Store, worker_pool: WorkerPool, native: str | None
    ) -> None:
        self.store = store
        self.worker_pool = worker_pool
        self._native = native
        self.known = Imports(store, worker_pool, self.need).known

    def prepare(self, case: Case, samples: Sequence[Sample]) -> dict[Sample, Reading]:
        """Return samples' inputs and references; make missing ones."""
        groups = sample_groups(case, samples)
        self._take(case)
        with self.worker_pool.one_at_a_time(case.shared):
            found = self._readings(case, groups)
            if found is None:
                self._prepare(case, groups)
                found = self._readings(case, groups)
        if found is None:
            raise lost(case.component.name)
        return found

    def _prepare(self, case: Case, groups: Sequence[Group]) -> None:
        """Make missing inputs and references, by PyTorch or by the foreign file."""
        host = reference_host(case)
        samples = [sample for group in groups for sample in group.samples]
        result = self.worker_pool.job(
            host,
            tasks.PREPARE if host == "torch" else file_reader().prepare,
            self.store.root,
            case.component,
            case.export,
            groups,
            case.reference,
            subject=case.component.name,
            label=f"{case.component.name}: export{' and reference' if samples else ''}",
            failure=Outcome.EXPORT,
            need=self.need(case, host),
        )
        for kind, seconds in cast("dict[str, float]", result.value).items():
            add_seconds(kind, seconds)

    def make_group(self, case: Case, group: Group) -> None:
        """Make a group's graph, and its samples' inputs and references."""
        self._take(case)
        self._prepare(case, (group,))

    def _take(self, case: Case) -> None:
        """Put a component's converted foreign files into the store."""
        converted = case.component.foreign.converted if case.component.foreign else ()
        for kind, _ in converted:
            owner = formats()[kind]
            host = f"{CONVERT}{owner.name}"
            self.make(
                tasks.TAKEN.of(kind=kind, host=host, task=file_reader().take),
                *(case.component, kind),
                decides=(keys.converted(case.component, kind), owner),
                subject=case.component.name,
                label=f"{case.id}: its {owner.own_format and owner.own_format.title}",
            )

    def _readings(
        self, case: Case, groups: tuple[Group, ...]
    ) -> dict[Sample, Reading] | None:
        """Return the readings from the store, or None unless it has all."""
        readings = {}
        for group in groups:
            if tasks.find_graph(self.store, case, group) is None:
                return None
            for sample in group.samples:
                found = tasks.find_reading(self.store, case, group, sample)
                if found is None:
                    return None
                readings[sample] = found
            kept = tuple(s for s in group.samples if not readings[s].refused)
            asking = replace(group, samples=kept)
            asks = kept and declared("questions")
            if asks and tasks.find_asked(self.store, case, asking) is None:
                return None
        return readings

    def export(self, case: Case) -> Entry:
        """Return the graph for a case's first sample, without references."""
        group = sample_groups(case, case.samples)[0]
        self._take(case)
        with self.worker_pool.one_at_a_time(case.shared):
            if tasks.find_graph(self.store, case, group) is None:
                self._prepare(case, (replace(group, samples=()),))
        return self.graph(case, group)

    def deployed(
        self,
        case: Case,
        graph: Entry,
        readings: Sequence[Reading],
    ) -> Deployed:
        """Return the deployed file of a graph, and the samples that it runs."""
        artifact, model = self.deploy(case, graph)
        return Deployed(
            artifact=artifact,
            model=model,
            probes=graph.file(export_files.PROBES),
            readings=tuple(readings),
        )

    def deploy(self, case: Case, onnx: Entry) -> tuple[Entry, str]:
        """Return the deployed file; make it if it is missing."""
        variant = case.variant
        declared = runtime(variant.backend)
        if not is_made(case):
            if declared.own_format is None:
                return onnx, export_files.MODEL
            stage = tasks.TAKEN.of(kind=declared.reads)
            taken = keys.converted(case.component, declared.reads)
            return self.found(stage, taken, declared), declared.model
        calibration = self._calibration(case, onnx)
        host = f"{CONVERT}{variant.backend}"
        native = keys.Native(None if variant.converter else self._native)
        decides = variant, onnx, native, calibration
        entry = self.make(
            tasks.DEPLOYED.of(kind=variant.backend, host=host),
            *(case.component, *decides),
            decides=decides,
            subject=case.component.name,
            label=f"{case.id}: conversion",
            need=partial(self.need, case, host),
        )
        return entry, declared.model

    def _calibration(self, case: Case, onnx: Entry) -> tuple[Entry, ...]:
        """Return the inputs that a case's variant is calibrated with, if it is."""
        made = runtime(case.backend).variants.get(case.variant.kind)
        if made is None or not made.calibrated:
            return ()
        if onnx.kind == "excerpt":
            return (onnx,)  # nothing else has values for the inputs of an excerpt
        if not case.calibration:
            msg = f"{case.id}: {case.variant.kind} has no inputs to be calibrated with."
            raise StageError(msg, outcome=Outcome.CONVERT)
        return self.inputs(case, case.calibration)

    def inputs(self, case: Case, samples: Sequence[Sample]) -> tuple[Entry, ...]:
        """Return samples' inputs without references; draw missing ones."""
        drawn = keys.whole(case.component)
        with self.worker_pool.one_at_a_time(("inputs", case.shared)):
            if None in (tasks.INPUTS.find(self.store, drawn, one) for one in samples):
                self.worker_pool.job(
                    "torch",
                    tasks.DRAW_INPUTS,
                    self.store.root,
                    case.component,
                    samples,
                    subject=case.component.name,
                    label=f"{case.component.name}: inputs",
                    failure=Outcome.EXPORT,
                )
        return tuple(self.found(tasks.INPUTS, drawn, sample) for sample in samples)

    def effects(
        self,
        stage: Stage,
        given: Trials,
        values: Mapping[str, object],
        *rest: object,
        need: Need | None,
    ) -> Effects:
        """Return the effects of rounded weights; make the trials if they are missing.

        The task of `stage` makes the trials from `given` and the `rest`. `values` has
        what decides the values that the trials move.
        """
        entry = self.make(
            stage,
            *(given, *rest),
            decides=(given, values),
            subject=given.component.name,
            label=f"{given.component.name}: rounded weights",
            need=lambda: need,
        )
        path = entry.file(tasks.EFFECTS_FILE)
        try:
            with in_a_clause():
                return msgpack.decode(read_bytes(path), type=Effects)
        except (OSError, DamagedError) as error:
            msg = f"{path} cannot be read: {error}. Run `parity store verify`."
            raise StoreError(msg) from error

    def need(self, case: Case, host: str) -> Need | None:
        """Return the memory that a stage of a case needs; None if it is unknown."""
        return need_of(case, host, self.weights(case.component))

    def weights(self, component: Component) -> int:
        """Return the bytes of a component's weights in float32; 0 if unknown."""
        if stored := stored_weights(component):
            return stored
        # A user's own recipe may do anything in `build`; those here draw weights.
        if component.source.seed is None or component.recipe not in RECIPES:
            return file_weights(component)
        entry = self.make(
            tasks.WEIGHTS,
            component,
            subject=component.name,
            label=f"{component.name}: counting weights",
        )
        return int(cast("int", entry.meta["bytes"]))

    def self_rows(self, case: Case, readings: Sequence[Reading]) -> tuple[Row, ...]:
        """Return PyTorch's own error in each dtype that a case's tolerances ask for.

        Where PyTorch cannot run in a dtype, one row says why.
        """
        device, component = case.reference, case.component

        def rows(name: str) -> Iterator[Row]:
            dtype = SELF[name]
            decides = {
                reading.sample: (
                    reading.reference.key_digest,
                    dtype,
                    keys.processor(device),
                )
                for reading in readings
            }
            with self.worker_pool.one_at_a_time((name, case.shared)):
                lacking = [
                    reading
                    for reading in readings
                    if tasks.SELF.find(self.store, *decides[reading.sample]) is None
                ]
                if lacking:
                    result = self.worker_pool.job(
                        tasks.SELF.host,
                        tasks.MEASURE_SELF,
                        self.store.root,
                        *(component, lacking, device, dtype),
                        subject=component.name,
                        label=f"{component.name}: PyTorch's own {dtype}",
                        failure=Outcome.REFERENCE,
                        need=self.need(case, "torch"),
                    )
                    add_seconds("self", result.wall_ns / 1e9)
            for sample, of_sample in decides.items():
                entry = self.found(tasks.SELF, *of_sample)
                yield from self_rows_of(name, entry, sample)

        return each_self(case.within, rows)

    def graph(self, case: Case, group: Group) -> Entry:
        """Return a graph that was made before.

        Raises:
            StageError: The store no longer has it.

        """
        return _there("onnx", tasks.find_graph(self.store, case, group))

    def checked(self, case: Case, graph: Entry) -> Mapping[str, object]:
        """Return the differences between a graph and PyTorch's module.

        The result is empty if there is no module or no graph, or no plug-in that
        compares them.
        """
        if reference_host(case) != "torch" or not declared("graphs"):
            return {}
        checked = self.make(
            tasks.CHECKED,
            *(case.component, graph, case.reference),
            decides=(case.component, graph),
            subject=case.component.name,
            label=f"{case.component.name}: weights and attributes",
            need=partial(self.need, case, "torch"),
        )
        return checked.meta

    def asked(self, case: Case, group: Group) -> Entry:
        """Return the reference's answers of the input-sensitivity check.

        Raises:
            StageError: The store no longer has them.

        """
        return _there("asked", tasks.find_asked(self.store, case, group))

    def make(
        self,
        stage: Stage,
        *arguments: object,
        subject: str,
        label: str,
        decides: Sequence[object] | None = None,
        need: Callable[[], Need | None] = lambda: None,
    ) -> Entry:
        """Return an entry; if it is missing, a job of one thread makes it.

        Args:
            stage: The stage, which has a task.
            *arguments: Arguments of the task.
            subject: The component or pipeline, for progress.
            label: The beginning of every message.
            decides: What decides the entry, if not just the arguments.
            need: Returns the forecast memory. It is called only if there is a job, for
                it may count weights.

        """
        decides = arguments if decides is None else decides
        key = stage.key(*decides)  # once, for it may read a converter's libraries
        digest = digest_value(key)
        with self.worker_pool.one_at_a_time((stage.kind, digest)):
            if self.store.find(stage.kind, key) is None:
                result = self.worker_pool.job(
                    stage.host,
                    tasks.WORK,
                    *(self.store.root, stage, decides, digest, arguments),
                    subject=subject,
                    label=label,
                    failure=stage.failure,
                    need=need(),
                )
                if stage.seconds:
                    add_seconds(stage.seconds, result.wall_ns / 1e9)
        entry = stage.checked(self.store.find(stage.kind, key))
        return _there(stage.kind, entry)

    def found(self, stage: Stage, *decides: object) -> Entry:
        """Return an entry that must be in the store.

        Raises:
            StageError: The store does not have it.

        """
        return _there(stage.kind, stage.find(self.store, *decides))


def each_self(
    within: Iterable[str], rows: Callable[[str], Iterable[Row]]
) -> tuple[Row, ...]:
    """Return the rows of each name; a failure becomes a row that has the reason."""
    found: list[Row] = []
    for name in within:
        try:
            found += rows(name)
        except ParityError as error:
            found.append(_self_row(name, "", "", _NOTHING, looks=str(error)))
    return tuple(found)


def self_rows_of(name: str, entry: Entry, sample: str = "") -> Iterator[Row]:
    """Yield an entry's rows; the entry of a component does not know its sample's id."""
    meta: Mapping[str, Any] = entry.meta
    samples = meta.get("samples") or [sample] * len(meta["probes"])
    try:
        rows = list(
            zip(samples, meta["probes"], from_columns(meta["rows"]), strict=True)
        )
    except (SpecError, ValueError) as error:
        msg = f"{entry.id} holds no readable rows: {error}. Run `parity store verify`."
        raise StoreError(msg) from error
    for at in rows:
        yield _self_row(name, *at)


def _self_row(
    name: str, sample: str, probe: str, comparison: Comparison, looks: str = ""
) -> Row:
    return Row(
        sample=sample,
        what=name,
        probe=probe,
        module="",
        comparison=comparison,
        looks=looks,
    )


def _there(kind: str, entry: Entry | None) -> Entry:
    if entry is None:
        raise lost(kind)
    return entry


def native_converter(named: str | None) -> str | None:
    """Return the native ``MNNConvert`` to use: the named one, or one on PATH.

    Raises:
        StageError: The named one cannot be found.

    """
    if not named:
        return shutil.which("MNNConvert")
    # Path would drop the ./ of ./x, and a bare name is looked for on PATH.
    found = shutil.which(os.path.expanduser(named))  # noqa: PTH111
    if found is None:
        msg = f"--mnn-convert names {named!r}, which is no program that can be run."
        raise StageError(msg, outcome=Outcome.UNAVAILABLE)
    return found
