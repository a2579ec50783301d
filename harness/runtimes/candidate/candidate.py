"""Run a deployed file and compare it, value by value, while it runs.

This runs in a child process; only numbers come back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import structs

from harness.core.case import ITSELF, Component, Device
from harness.core.comparison import Comparison
from harness.core.entry import check_artifact
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.plugins import answers, merged
from harness.core.probes import Probe, ValueKind, load_probes
from harness.core.record import LAYERS, OUTPUTS, READ, Row
from harness.core.runtime import resolve, runtime
from harness.engine.deployed import Deployed, Reading
from harness.engine.host import report_progress
from harness.measure.align import (
    MASK_END,
    coverage_of,
    ended,
    read_as,
    same_axes,
    shown,
    source_value,
    wanted_values,
)
from harness.measure.compare import compare
from harness.measure.name_map import Names, about, as_given
from harness.measure.patterns import Isolated, Off, beyond_noise, pattern_of
from harness.measure.trace import OUTPUT, Trace, load_inputs, open_trace
from harness.measure.unread import without
from harness.recipes import uses
from harness.runtimes.graph.onnx_graph import computing_nodes, read_into
from harness.runtimes.session import (
    SAMPLE,
    Feeds,
    Opening,
    Session,
    Sketch,
    TracedSession,
    open_session,
)

STALE = "the same answer as to an earlier sample: a buffer that was not written again"

DESCRIBED, LOOKED_AT = 32, 2**25
"""Largest number of a sample's values whose errors are described, and of elements after
which no more are described: every rule reads all elements of a value."""


def run_candidate(
    case: str,
    component: Component,
    device: Device,
    backend_name: str,
    deployed: Sequence[Deployed],
) -> dict[str, Any]:
    """Run every sample twice, as deployed and watched, and return the measurements.

    Returns:
        Fields of a `CaseRecord`: ``rows``, ``ran``, ``coverage``,
        ``observer_max_abs``, ``foreign``, ``contract``.

    Raises:
        StageError: The artifact is damaged, or the runtime refuses it or the run.

    """
    taken: dict[str, Any] | None = None
    rows: list[Row] = []
    coverages: list[dict[str, Any]] = []
    observer: dict[str, float] = {}
    contract: list[dict[str, Any]] = []
    for file in deployed:
        check_artifact(file.artifact)
        probes = load_probes(file.probes)
        path = file.artifact.file(file.model)
        names = Names.load(path.parent)
        has = as_given(component, names)
        outputs = [spec.name for spec in has.outputs]
        taken = about(names, Names.load(file.probes.parent)) if names else None
        size = f"{round(file.artifact.size_bytes / 2**20)} MB"
        with open_session(backend_name, path, device, outputs) as session:
            deployed_outputs: dict[str, Mapping[str, np.ndarray]] = {}
            for reading in file.readings:
                check_artifact(reading.inputs)
                check_artifact(reading.reference)
            given = [load_inputs(r.inputs, component) for r in file.readings]
            for reading, feeds in zip(file.readings, given, strict=True):
                report_progress("running", case, f"{size}, {reading.sample}")
                trace = _begun(reading)
                try:
                    made = session.run(feeds)
                except StageError as error:
                    raise _failure(
                        error, session.run, has, file.model, feeds=given, failed=feeds
                    ) from error
                _check_outputs(file.model, made, outputs)
                if len(trace.outputs) > len(outputs):  # an excerpt has no such values
                    made = {**made, **uses(component, made)}
                rows += output_rows(
                    reading.sample, made, trace, deployed_outputs.values()
                )
                deployed_outputs[reading.sample] = made
            rows = _explained(
                session,
                rows,
                Opening(
                    backend=backend_name, path=path, device=device, outputs=outputs
                ),
                feeds=dict(zip(deployed_outputs, given, strict=True)),
                made=deployed_outputs,
            )
            if file.asked is not None:
                report_progress("running", case, f"{size}, each input changed alone")
                check_artifact(file.asked)
                first = deployed_outputs[file.readings[0].sample]
                contract.append(
                    merged("replies", session.run, has, given, first, file.asked)
                )
            # After the session: the runtime must be the one to refuse an invalid file.
            watches = any(reading.layers for reading in file.readings)
            readers, computing, in_file = (
                (
                    read_into(file.graph),
                    computing_nodes(file.graph),
                    _values_in(backend_name, path),
                )
                if watches
                else ({}, 0, None)
            )
            for reading, feeds in zip(file.readings, given, strict=True):
                if not reading.layers:
                    continue
                report_progress("running", case, f"{size}, layers of {reading.sample}")
                trace = _begun(reading)
                watcher = Watcher(reading.sample, trace, probes)
                watched = session.watch(feeds, watcher.sizes, watcher.on_value)
                rows += watcher.rows()
                coverages.append(
                    coverage_of(
                        probes,
                        watcher.compared,
                        readers,
                        names.compared if names else outputs,
                        is_foreign=taken is not None and taken["by"] != ITSELF,
                        in_file=in_file,
                        operators=computing,
                    )
                )
                observer[reading.sample] = _gap(
                    deployed_outputs[reading.sample], watched
                )
            ran = session.ran
        taken = taken and {**taken, **_lineage(probes, rows)}
    return {
        "rows": tuple(rows),
        "ran": asdict(ran),
        "coverage": _least(coverages, rows, deployed[-1].probes),
        "observer_max_abs": observer,
        "foreign": taken,
        "contract": tuple(contract),
    }


def _explained(
    session: Session,
    rows: list[Row],
    opening: Opening,
    feeds: Mapping[str, Feeds],
    made: Mapping[str, Feeds],
) -> list[Row]:
    """Return rows that say what is wrong with calls that were made elsewhere."""
    target = opening.device.target
    if target is None or not target.trace:
        return rows
    return cast("TracedSession", session).explained(rows, opening, feeds, made)


def _failure(error: StageError, *ran: object, **feeds: object) -> StageError:
    """Return what plug-ins say of the failure of a sample's run, or the error."""
    return next(filter(None, answers("failures", error, *ran, **feeds)), error)


def _begun(reading: Reading) -> Trace:
    """Name the sample that runs now, and return its reference values."""
    SAMPLE.set(reading.sample)
    return open_trace(reading.reference.path)


def _values_in(backend: str, path: Path) -> Collection[str] | None:
    """Return the values that a deployed file has; None if its runtime does not tell."""
    told = runtime(backend).values
    if not told:
        return None
    return {source_value(name) for name in resolve(told)(path)}


def _least(
    coverages: Sequence[dict[str, Any]], rows: Sequence[Row], probes: Path
) -> dict[str, Any] | None:
    """Return the least coverage, with what follows errors if a shape differs."""
    if not coverages:
        return None
    least = min(coverages, key=lambda one: one["seen"] / max(1, one["reach"]))
    if any(map(_has_other_shape, rows)):
        lineage = _lineage(load_probes(probes), rows)
        least |= {name: lineage[name] for name in ("unseen", "kinds")}
    return least


def _has_other_shape(row: Row) -> bool:
    """Whether a layer's value has another shape than PyTorch's value."""
    found = row.comparison
    return row.what == LAYERS and found.expected_shape != found.actual_shape


def _lineage(probes: Sequence[Probe], rows: Sequence[Row]) -> dict[str, Any]:
    """Return facts about values that rows lack, to follow errors from value to value.

    Returns:
        ``unseen``: Values that were not compared, to those they were computed from.
        ``unpaired``: Computed values that the file has under no name, to their modules.
        ``kinds``: Compared values that compute nothing, to their kinds.

    """
    compared = {row.probe for row in rows if row.what == LAYERS}
    read = {parent for probe in probes for parent in probe.parents}
    return {
        "unseen": {
            probe.name: list(probe.parents)
            for probe in probes
            if probe.name in read - compared
        },
        "unpaired": {
            probe.name: probe.module
            for probe in probes
            if probe.kind in {ValueKind.COMPUTE, ValueKind.DUPLICATE} and not probe.onnx
        },
        "kinds": {
            probe.name: probe.kind.value
            for probe in probes
            if probe.name in compared and probe.kind is not ValueKind.COMPUTE
        },
    }


class Watcher:
    """Compares each value with the reference's while the runtime still has it.

    If the operators did not run `isolated`, the inputs of each are the candidate's own.
    """

    def __init__(
        self,
        sample: str,
        trace: Trace,
        probes: Sequence[Probe],
        isolated: Isolated | None = None,
    ) -> None:
        self._sample = sample
        self._trace = trace
        self._isolated = isolated
        self._wanted = {
            value: probe
            for value, probe in wanted_values(probes).items()
            if probe.name in self._trace
            # Exporters write a complex value as pairs of real ones.
            and np.dtype(self._trace.places[probe.name].dtype).kind != "c"
        }
        self._seen: dict[str, tuple[Probe, str, Comparison, str]] = {}
        self._read: dict[str, tuple[Probe, str, Comparison, str]] = {}
        self._to_describe = DESCRIBED
        self._looked_at = 0
        self.sizes = {
            value: self._trace[probe.name].nbytes
            for value, probe in self._wanted.items()
        }

    @property
    def compared(self) -> set[str]:
        """Exported values that were compared with the reference."""
        return set(self._seen)

    def expected(self, value: str) -> np.ndarray:
        """Return the reference's value for an exported value."""
        return self._trace[self._wanted[value].name]

    def on_value(self, name: str, actual: np.ndarray) -> None:
        """Compare a value, if the reference has it; `name` is the runtime's."""
        value = source_value(name)
        probe = self._wanted.get(value)
        if probe is None:
            return
        expected = self._trace[probe.name]
        if isinstance(actual, Sketch):
            # A mask has no sketch that two runtimes agree on.
            if not self._trace.places[probe.name].is_mask:
                floor = self._trace.floor_rms(probe.name)
                found = actual.compared(expected, floor)
                self._seen[value] = (probe, LAYERS, found, "")
            self._trace.forget(probe.name)
            return
        shape = same_axes(actual.shape, expected.shape)
        actual = read_as(expected, actual if shape is None else actual.reshape(shape))
        is_mask = self._trace.places[probe.name].is_mask
        scores = shown(expected, actual, is_mask=is_mask)
        comparison = compare(
            expected=scores[0],
            actual=scores[1],
            floor_rms=self._trace.floor_rms(probe.name),
        )
        read = read_alone(self._trace, probe.name, *scores, comparison)
        if read:
            again, here, there = read
            looks = self._looks(here, there, again, probe)
            self._read[value] = (probe, READ[LAYERS], again, looks)
        # Two masks that differ are described by what they hold.
        if is_mask and any((np.abs(score) >= MASK_END).any() for score in scores):
            expected, actual = ended(expected), ended(actual)
        else:
            expected, actual = scores
        looks = "" if read else self._looks(expected, actual, comparison, probe)
        self._seen[value] = (probe, LAYERS, comparison, looks)
        self._trace.forget(probe.name)

    def _looks(
        self,
        expected: np.ndarray,
        actual: np.ndarray,
        found: Comparison,
        probe: Probe,
    ) -> str:
        """Describe an error far beyond noise, unless enough errors were described."""
        if not self._to_describe or self._looked_at >= LOOKED_AT:
            return ""
        if not beyond_noise(found):
            return ""
        self._to_describe -= 1
        self._looked_at += expected.size
        near = {p: self._trace[p] for p in probe.parents if p in self._trace}
        off = Off(
            expected=expected,
            actual=actual,
            floor_rms=found.floor_rms,
            # Operators before a module may cause the error, so its name says nothing.
            op="" if probe.between else probe.op,
            near=near,
            probe=probe,
            isolated=self._isolated,
        )
        return pattern_of(off)

    def rows(self) -> list[Row]:
        """Return a row for each compared value, in order of execution.

        A value with padding in it has a second row, of what is read.
        """
        every = (*self._seen.values(), *self._read.values())
        found = sorted(every, key=lambda pair: pair[0].position)
        compared = {probe.name for probe, *_ in found}
        return [
            Row(
                sample=self._sample,
                what=what,
                probe=probe.name,
                position=probe.position,
                op=probe.op,
                module=probe.module,
                source=probe.source,
                parents=probe.parents,
                comparison=comparison,
                looks=looks,
                between=probe.is_module
                and (probe.between or not compared.issuperset(probe.parents)),
            )
            for probe, what, comparison, looks in found
        ]


def read_alone(
    trace: Trace,
    name: str,
    expected: np.ndarray,
    actual: np.ndarray,
    found: Comparison,
) -> tuple[Comparison, np.ndarray, np.ndarray] | None:
    """Compare a value again without what a mask takes out, if its error is large.

    Returns:
        The comparison, and both sides with zeros where nobody reads them. None if the
        error is small, or everything is read.

    """
    if not beyond_noise(found) or expected.shape != actual.shape:
        return None
    unread = trace.unread(name)
    if unread is None:
        return None
    expected, actual = without(unread, expected, actual)
    floor = trace.floor_rms(name)
    if floor is not None:  # the zeros have no error, and count in the mean
        floor *= math.sqrt(1.0 - float(unread.mean()))
    again = compare(expected=expected, actual=actual, floor_rms=floor)
    if unread.all():  # the zeros are no answer of the network
        again = structs.replace(again, expected_constant=False, actual_constant=False)
    return again, expected, actual


def _check_outputs(
    model: str, made: Mapping[str, np.ndarray], promised: Sequence[str]
) -> None:
    """Refuse a run that lacks an output: no row would show what is missing."""
    if lost := [name for name in promised if name not in made]:
        msg = f"{model} ran and gave {sorted(made)}; {', '.join(lost)} is missing."
        raise StageError(msg, outcome=Outcome.MISSING)


def output_rows(
    sample: str,
    made: Mapping[str, np.ndarray],
    trace: Trace,
    earlier: Iterable[Mapping[str, np.ndarray]] = (),
) -> list[Row]:
    """Compare outputs with the recorded ones.

    `earlier` are the candidate's outputs for other samples.
    """
    rows = []
    for index, (name, given) in enumerate(made.items()):
        expected, floor = trace[OUTPUT + name], trace.floor_rms(OUTPUT + name)
        actual = read_as(expected, given)
        found = compare(expected=expected, actual=actual, floor_rms=floor)
        found_of = {OUTPUTS: found}
        read = read_alone(trace, OUTPUT + name, expected, actual, found)
        looks = ""
        if read:
            found, expected, actual = read
            found_of[READ[OUTPUTS]] = found
        if beyond_noise(found):
            others = [outputs[name] for outputs in earlier if name in outputs]
            # Outputs that are empty or infinite are equal without any buffer.
            held = actual.size > 0 and bool(np.isfinite(actual).all())
            stale = held and any(np.array_equal(actual, o) for o in others)
            near = {other: trace[OUTPUT + other] for other in made if other != name}
            off = Off(
                expected=expected,
                actual=actual,
                floor_rms=floor,
                op="output",
                near=near,
            )
            looks = STALE if stale else pattern_of(off)
        rows += [
            Row(
                sample=sample,
                what=what,
                probe=name,
                position=index,
                op="output",
                module="",
                comparison=comparison,
                looks=looks,
            )
            for what, comparison in found_of.items()
        ]
    return rows


def _gap(one: Mapping[str, np.ndarray], two: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference; infinite where one side alone is not finite."""
    worst = 0.0
    for name in two:  # only the first also has values that are read from outputs
        measured = compare(expected=one[name], actual=two[name])
        # Values of other shapes are not counted, and neither are two without elements.
        empty = one[name].shape == two[name].shape and measured.count == 0
        if measured.nonfinite_mismatched or (measured.count == 0 and not empty):
            return math.inf
        worst = max(worst, measured.max_abs if math.isfinite(measured.max_abs) else 0.0)
    return worst
