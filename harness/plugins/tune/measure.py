"""Run cases on many inputs, and keep the worst error of each value.

A tuning is a run with more samples. The engine runs each case on a few of them at a
time, and only the extent of their rows is kept. References of drawn inputs are removed
from the store again, because those with layers would fill the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from msgspec import structs

from harness.core.case import VARIED, Case, Sample, sample_groups, samples_of
from harness.core.end_to_end import Tested
from harness.core.entry import Entry
from harness.core.environment import installed
from harness.core.errors import ParityError, SuiteError
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Row, as_read
from harness.core.settings import Settings
from harness.core.waiting import awaited
from harness.engine.artifacts import native_converter
from harness.engine.engine import Engine
from harness.engine.executors import executor_on
from harness.engine.run import missing, open_store, path_of
from harness.engine.run_folder import PICTURES
from harness.engine.worker_pool import Progress
from harness.judge.policy import Policy
from harness.judge.stored_bits import without_effect
from harness.judge.tolerance import GROUPS, Tolerance
from harness.judge.value import judge
from harness.plugins.pipelines.case import PipelineCase
from harness.plugins.pipelines.stages import draw
from harness.plugins.tune.draws import (
    REALISTIC,
    drawn_pairs,
    independent,
    is_wide,
    sample_of,
    shapes_of,
)
from harness.plugins.tune.headroom import worse
from harness.plugins.tune.record import CaseTuning, Effort, TriedInput, Tuning
from harness.suite.extra_inputs import load_worst_inputs
from harness.suite.stale import worst_inputs_of
from harness.suite.suite import Suite

_TOGETHER: Final = 100
"""Number of draws that one process runs; each process builds the module anew."""

_WATCHED_TOGETHER: Final = 16
"""The same with layers; so many recorded references are on the disk at once."""

_INPUTS_A_LIMIT: Final = 10
"""Number of inputs that a stage's time limit is meant for."""


def tune(
    suite: Suite,
    cases: Sequence[Tested],
    effort: Effort,
    settings: Settings,
    now: datetime,
    *,
    keep: Callable[[Tuning], object] = lambda _: None,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Tuning, tuple[str, ...]]:
    """Measure cases on many inputs; return a sentence for each that failed, too.

    `now` gives the tuning its name. `keep` receives all measurements so far, again and
    again, so that a killed process loses nothing. `on_progress` is called from several
    threads.

    Raises:
        ParityError: Nothing could be measured, or the suite's files are wrong.

    """
    times = _TOGETHER / _INPUTS_A_LIMIT
    limits = structs.replace(suite.limits, timeout_s=suite.limits.timeout_s * times)
    native = settings.mnn_convert or None
    native_converter(native)  # nodes would each find out that it is missing
    store = open_store(settings.store)
    if executor := executor_on(settings.on, on_progress):
        from harness.plugins.fleet.cluster import NodeSettings
        from harness.plugins.tune.elsewhere import tune_on

        place = NodeSettings.of(settings, limits)
        return tune_on(executor, place, suite, cases, effort=effort, now=now, keep=keep)
    pictures = TemporaryDirectory(prefix="parity-tune-")
    engine = Engine(
        store,
        limits,
        mnn_convert=native,
        pictures=Path(pictures.name, PICTURES),
        on_progress=on_progress,
    )
    tuner = Tuner(engine, suite, effort, now, keep)
    failed: list[str] = []
    try:
        tuner.measure(cases)
    except KeyboardInterrupt:
        # An interruption must not lose hours of measurements.
        failed = ["stopped: nothing further was tuned"]
        if not tuner.is_any:
            raise
    finally:
        engine.close()
        store.sweep()
        pictures.cleanup()
    failed = [*tuner.failed, *failed]
    if not tuner.is_any:
        raise nothing_tuned(failed)
    return tuner.tuning, tuple(failed)


def nothing_tuned(failed: Sequence[str]) -> SuiteError:
    """Return the error of a tuning without any measurement."""
    reason = failed[0] if failed else "no case was chosen."
    return SuiteError(f"nothing could be tuned: {reason}")


class _Tally:
    """The extent of each value of one case, updated with each sample."""

    def __init__(self, case: Tested, policy: Policy) -> None:
        self.case = case
        self.failure = ""
        self.usage: dict[str, float] = {}
        self.layers: dict[str, None] = {}
        self.overflowed: set[str] = set()
        self._policy = policy
        self._record: CaseRecord | None = None
        self._rows: dict[tuple[str, str, str], tuple[float, Row]] = {}
        self._limits: dict[tuple[str, str, str], tuple[Tolerance, bool]] = {}

    def add(self, record: CaseRecord, sample: str = "") -> None:
        """Add the rows of one record, all of one `sample` if given, or its failure."""
        if record.failure is not None:
            self.failure = record.failure.message
            return
        if told := without_effect(record):  # bounds would be of another variant
            self.failure = told[1]
            return
        if self._record is None or self._record.coverage is None:
            self._record = record
        rows = [row for row in as_read(record.rows) if row.what in GROUPS]
        if sample:
            rows = [replace(row, sample=sample) for row in rows]
        self.overflowed |= {
            row.sample
            for row in rows
            if row.what != LAYERS and row.comparison.nonfinite_expected
        }
        for row in rows:
            if row.sample not in self.overflowed:
                self._add(row)

    def _add(self, row: Row) -> None:
        key = (row.what, row.probe, row.module)
        if key not in self._limits:
            rule = self._policy.for_probe(
                (self.case.subject, self.case.backend, self.case.how),
                group=row.what,
                probe=row.probe,
                module=row.module,
            )
            # PyTorch's own error in fewer bits is not measured on every draw.
            tolerance = rule.tolerance.without_within(row.what)
            self._limits[key] = tolerance, rule.allow_misread
        tolerance, allow_misread = self._limits[key]
        comparison, is_output = row.comparison, row.what == OUTPUTS
        usage = judge(
            comparison,
            tolerance,
            is_output=is_output,
            allow_misread=allow_misread,
            # A hint without lines makes constant outputs, which are no error.
            allow_constant=is_output
            and comparison.expected_constant
            and comparison.actual_constant,
        ).usage
        if row.what == LAYERS:
            self.layers[row.sample] = None
        else:
            self.usage[row.sample] = max(usage, self.usage.get(row.sample, 0.0))
        if key in self._rows:
            most, known = self._rows[key]
            sample = row.sample if usage > most else known.sample
            usage = max(usage, most)
            extent = worse(known.comparison, comparison)
            row = replace(known, sample=sample, comparison=extent)
        self._rows[key] = (usage, row)

    def tuning(self, suite: str) -> CaseTuning:
        """Return the measurements of a case that was measured."""
        assert self._record is not None  # noqa: S101
        rows = [row for _, row in self._rows.values()]
        rows.sort(key=lambda row: (row.what, row.position))
        record = replace(self._record, suite=suite, rows=tuple(rows))
        return CaseTuning(
            record=record, usage=dict(self.usage), layers=tuple(self.layers)
        )


@dataclass
class Tuner:
    """Measure one component or pipeline after another, and keep what was measured."""

    engine: Engine
    suite: Suite
    effort: Effort
    now: datetime
    keep: Callable[[Tuning], object]
    _tallies: list[_Tally] = field(default_factory=list)
    _tried: dict[str, dict[str, TriedInput]] = field(default_factory=dict)
    _took_s: dict[str, float] = field(default_factory=dict)
    _missing: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._policy = Policy.load(self.suite.tolerances_path)

    def measure(self, cases: Sequence[Tested]) -> None:
        """Measure cases, one component or pipeline after another."""
        together: dict[str, list[_Tally]] = {}
        for case in cases:
            if names := missing(case):
                self._missing.append(f"{case.id}: {names[0]} is not installed.")
            else:
                tally = _Tally(_plain(case), self._policy)
                together.setdefault(case.subject, []).append(tally)
        for tallies in together.values():
            self._tallies += tallies
            components = [(t, t.case) for t in tallies if isinstance(t.case, Case)]
            if components:
                self._measure(components)
            pipelines = [
                (t, t.case) for t in tallies if isinstance(t.case, PipelineCase)
            ]
            if pipelines:
                self._measure_pipeline(pipelines)
            for tally in tallies:
                if not tally.usage and not tally.failure:
                    tally.failure = (
                        "PyTorch's own outputs are finite on none of its inputs, so "
                        "nothing can be compared with them."
                    )

    def _measure_pipeline(self, some: Sequence[tuple[_Tally, PipelineCase]]) -> None:
        """Measure the cases of one pipeline on its own seed, then on drawn pairs."""
        own = some[0][1].pipeline
        tried = self._tried[own.name] = {}
        pairs = drawn_pairs(own, self.effort.seeds, self.effort.seed)
        for why, pipeline in (("suite", own), *(("independent", one) for one in pairs)):
            sample = sample_of(pipeline)
            tried[sample.id] = TriedInput(sample=sample, why=why)
            self._run(
                [
                    (t, case if pipeline is own else replace(case, pipeline=pipeline))
                    for t, case in some
                ],
                sample.id,
            )

    def _measure(self, some: Sequence[tuple[_Tally, Case]]) -> None:
        """Measure the cases of one component."""
        cases, effort = [case for _, case in some], self.effort
        component = cases[0].component
        tried = self._tried[component.name] = self._own_inputs(cases)
        self._run(some)
        wide = [(tally, case) for tally, case in some if is_wide(case)]
        families = {REALISTIC: some, VARIED: wide} if wide else {REALISTIC: some}
        shapes = shapes_of(cases)
        for family, takers in families.items():
            draws = list(
                independent(component, shapes, family, effort.samples, effort.seed)
            )
            watched = [replace(one, layers=True) for one in draws[: effort.layers]]
            for chunk in (
                *_chunks(watched, _WATCHED_TOGETHER),
                *_chunks(draws[effort.layers :], _TOGETHER),
            ):
                # An input that was kept and is drawn again counts as a draw.
                for sample in chunk:
                    tried[sample.id] = TriedInput(sample=sample, why="independent")
                self._run([(tally, _on(case, chunk)) for tally, case in takers])
        # An input that is worst for one build is near the worst for the others.
        worst = {max(t.usage, key=t.usage.__getitem__) for t, _ in some if t.usage}
        for family, takers in families.items():
            if again := [
                replace(one.sample, layers=True)
                for id_, one in tried.items()
                if id_ in worst
                and one.sample.profile == family
                # Layers of the suite's inputs are compared already, or too large.
                and one.why != "suite"
                and not all(id_ in tally.layers for tally, _ in takers)
            ]:
                self._run([(tally, _on(case, again)) for tally, case in takers])

    def _own_inputs(self, cases: Sequence[Case]) -> dict[str, TriedInput]:
        """Return the inputs that every run tries, and why it does."""
        path = worst_inputs_of(self.suite)
        names = {case.id for case in cases}
        found = load_worst_inputs(path, names) if path.is_file() else {}
        kept = {sample for samples in found.values() for sample in samples}
        return {
            sample.id: TriedInput(
                sample=sample, why="kept" if sample in kept else "suite"
            )
            for sample in samples_of(cases)
        }

    def _run(self, steps: Iterable[tuple[_Tally, Tested]], sample: str = "") -> None:
        """Run each case that has not failed yet, and delete its drawn references."""
        steps = [(tally, case) for tally, case in steps if not tally.failure]
        if not steps:
            return
        begin, subject = perf_counter(), steps[0][1].subject
        before_s = self._took_s.setdefault(subject, 0.0)  # if the first run is stopped
        running = self.engine.start(case for _, case in steps)
        for (tally, _), record in zip(steps, running, strict=True):
            tally.add(awaited(record), sample)
        self._forget([case for tally, case in steps if case is not tally.case])
        self._took_s[subject] = before_s + perf_counter() - begin
        if self.is_any:
            self.keep(self.tuning)

    def _forget(self, cases: Iterable[Tested]) -> None:
        """Remove the references of drawn inputs from the store."""
        gone: dict[Path, Entry] = {}
        for case in cases:
            with suppress(ParityError):  # the case's record has the failure
                gone |= {entry.path: entry for entry in self._drawn(case)}
        for entry in gone.values():
            self.engine.store.remove(entry)

    def _drawn(self, case: Tested) -> Iterator[Entry]:
        """Yield the stored inputs and references of a case that were drawn for it."""
        if isinstance(case, PipelineCase):
            artifacts = self.engine.artifacts
            known = artifacts.known(case)
            yield from draw(artifacts, known.pipeline, known.device)
        if not isinstance(case, Case):
            return
        drawn = {sample.id for sample in case.samples if sample.label}
        for _, readings in self.engine.references(case):
            for reading in readings:
                if reading.sample in drawn:
                    yield from (reading.reference, reading.inputs)

    @property
    def is_any(self) -> bool:
        """Whether anything was measured."""
        return any(tally.usage for tally in self._tallies)

    @property
    def failed(self) -> list[str]:
        """A sentence for each case that could not be measured completely."""
        failures = [f"{t.case.id}: {t.failure}" for t in self._tallies if t.failure]
        return [*self._missing, *failures]

    @property
    def tuning(self) -> Tuning:
        """Return all measurements so far; there must be some."""
        path = path_of(self.suite)
        cases = {t.case.id: t.tuning(path) for t in self._tallies if t.usage}
        overflowed: dict[str, set[str]] = {}
        for tally in self._tallies:
            overflowed.setdefault(tally.case.subject, set()).update(tally.overflowed)
        versions = installed(("torch",))
        for case in cases.values():
            if ran := case.record.ran:
                versions = {**versions, ran["backend"]: ran["version"]}
        return Tuning(
            id=self.now.strftime("%Y-%m-%dT%H-%M-%S"),
            date=self.now.strftime("%Y-%m-%d"),
            suite=path,
            effort=self.effort,
            versions=versions,
            tried={name: tuple(t.values()) for name, t in self._tried.items()},
            overflowed={name: tuple(sorted(o)) for name, o in overflowed.items()},
            cases=cases,
            took_s=dict(self._took_s),
        )


def _chunks(samples: Sequence[Sample], size: int) -> Iterator[Sequence[Sample]]:
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def _plain(case: Tested) -> Tested:
    """Return a case whose pictures alone are measured, and not what causes an error."""
    if not isinstance(case, PipelineCase):
        return case
    pipeline = replace(case.pipeline, seeds=0, attribution=False)
    return replace(case, pipeline=pipeline)


def _on(case: Case, samples: Iterable[Sample]) -> Case:
    """Return a case with other samples.

    The first sample of each graph comes before them. The graph is traced at its sizes,
    so the deployed files are the same as in an ordinary run.
    """
    first = (group.samples[0] for group in sample_groups(case, case.samples))
    anchors = (replace(sample, layers=False) for sample in first)
    return replace(case, samples=(*anchors, *samples))
