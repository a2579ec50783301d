"""Run cases on many inputs, and keep the worst row of each value.

`ManyInputs` starts the cases of a run. It runs each case on a few inputs at a time by
the run's engine, wherever that runs them, and joins the records. What was drawn is
removed from the store again, because references with layers would fill the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec import structs

from harness.core.case import VARIED, Case, Sample
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.groups import sample_groups, samples_of
from harness.core.outcome import Outcome
from harness.core.record import (
    LAYERS,
    OUTPUTS,
    CaseRecord,
    Failure,
    Row,
    added,
    as_read,
)
from harness.core.record_form import TriedInput, Why
from harness.core.waiting import awaited
from harness.engine.engine import Engine, record_of
from harness.engine.executors import CaseEngine
from harness.engine.finished_run import copy_pictures
from harness.engine.run import path_of
from harness.engine.run_folder import RunFolder
from harness.judge.policy import Policy
from harness.judge.stored_bits import without_effect
from harness.judge.tolerance import GROUPS
from harness.judge.value import judge
from harness.plugins.tune.draws import REALISTIC, independent, is_wide, shapes_of
from harness.plugins.tune.headroom import worse
from harness.suite.extra_inputs import load_worst_inputs
from harness.suite.stale import worst_inputs_of
from harness.suite.suite import Suite

TOGETHER: Final = 100
"""Number of draws that one process runs; each process builds the module anew."""

_WATCHED_TOGETHER: Final = 16
"""The same with layers; so many recorded references are on the disk at once."""

UNENDED: Final = Failure(
    outcome=Outcome.RUN, message="stopped: it was not tried on all inputs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The number of inputs to try.

    Attributes:
        samples: Number of independent draws of each family; it decides the assured
            share of inputs.
        layers: Number of these draws whose layers are compared too.
        seeds: Number of pairs of prompt and seed that a pipeline draws.

    """

    samples: int = 200
    layers: int = 59
    seeds: int = 20
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ManyInputs:
    """Runs each case on many inputs.

    Attributes:
        engine: Runs the cases.
        folder: Keeps what was measured so far, so that a killed process loses little.
        suite: Its tolerances say which input is the worst.
        effort: How many inputs to try.

    """

    engine: CaseEngine
    folder: RunFolder
    suite: Suite
    effort: Effort

    def start(self, cases: Iterable[Tested]) -> list[Future[CaseRecord]]:
        """Start cases in the background; return their records to come.

        Cases of one component or end-to-end case run beside each other, because they
        share references. On this machine, such groups run one after another.
        """
        policy = Policy.load(self.suite.tolerances_path)
        # PyTorch's own error in fewer bits is not measured on every draw.
        every = [
            _Extent(replace(case, within=()), policy)  # type: ignore[type-var]  # a dataclass too
            for case in cases
        ]
        subjects = dict.fromkeys(one.case.subject for one in every)
        groups = [[one for one in every if one.case.subject == s] for s in subjects]
        one_by_one = isinstance(self.engine, Engine)
        for some in [groups] if one_by_one else [[group] for group in groups]:
            # It must not keep the process from ending.
            threading.Thread(target=self._measure, args=(some,), daemon=True).start()
        return [one.ended for one in every]

    def _measure(self, groups: Iterable[Sequence[_Extent]]) -> None:
        for group in groups:
            try:
                if isinstance(group[0].case, EndToEndCase):
                    self._measure_end_to_end(group)
                else:
                    self._measure_component(group)
            except BaseException as error:  # noqa: BLE001  # the futures raise it
                for one in group:
                    one.ended.set_exception(error)
            else:
                for one in group:
                    one.ended.set_result(one.record)

    def _measure_end_to_end(self, group: Sequence[_Extent]) -> None:
        """Measure the cases on their own inputs, whose pictures stay, and on drawn."""
        seeds, seed = self.effort.seeds, self.effort.seed
        cases = [one.case for one in group if isinstance(one.case, EndToEndCase)]
        run = self.folder.path
        with TemporaryDirectory() as scratch:
            drawn = zip(*(case.drawn(seeds, seed) for case in cases), strict=True)
            for at, step in enumerate(drawn):
                sample = step[0][0]
                why: Why = "independent" if at else "suite"
                tried = {sample.id: TriedInput(sample=sample, why=why)}
                steps = [
                    (one, case) for one, (_, case) in zip(group, step, strict=True)
                ]
                self._run(steps, tried, own=not at, named=sample.id)
                if not at:
                    for one in group:
                        copy_pictures(one.record, run, Path(scratch))
            for one in group:
                copy_pictures(one.record, Path(scratch), run)

    def _measure_component(self, group: Sequence[_Extent]) -> None:
        """Measure the cases on their own inputs, on draws, and on the worst again."""
        effort = self.effort
        some = [(one, one.case) for one in group if isinstance(one.case, Case)]
        cases = [case for _, case in some]
        component, shapes = cases[0].component, shapes_of(cases)
        tried = self._own_inputs(cases)
        self._run(some, tried, own=True)
        wide = [(one, case) for one, case in some if is_wide(case)]
        families = {REALISTIC: some, VARIED: wide} if wide else {REALISTIC: some}
        for family, takers in families.items():
            draws = list(
                independent(component, shapes, family, effort.samples, effort.seed)
            )
            watched = [replace(draw, layers=True) for draw in draws[: effort.layers]]
            for chunk in (
                *_chunks(watched, _WATCHED_TOGETHER),
                *_chunks(draws[effort.layers :], TOGETHER),
            ):
                # An input that was kept and is drawn again counts as a draw.
                tried |= {
                    sample.id: TriedInput(sample=sample, why="independent")
                    for sample in chunk
                }
                self._run([(one, _on(case, chunk)) for one, case in takers], tried)
        # An input that is worst for one build is near the worst for the others.
        worst = {
            max(one.usage, key=one.usage.__getitem__) for one in group if one.usage
        }
        for family, takers in families.items():
            if again := [
                replace(one.sample, layers=True)
                for id_, one in tried.items()
                if id_ in worst
                and one.sample.profile == family
                # Layers of the suite's inputs are compared already, or too large.
                and one.why != "suite"
                and not all(id_ in extent.layers for extent, _ in takers)
            ]:
                self._run([(one, _on(case, again)) for one, case in takers], tried)

    def _own_inputs(self, cases: Sequence[Case]) -> dict[str, TriedInput]:
        """Return the inputs that every run tries, and why it does."""
        kept = load_worst_inputs(
            worst_inputs_of(self.suite), {case.id for case in cases}
        )
        labels = {sample for samples in kept.values() for sample in samples}
        return {
            sample.id: TriedInput(
                sample=sample, why="kept" if sample in labels else "suite"
            )
            for sample in samples_of(cases)
        }

    def _run(
        self,
        steps: Iterable[tuple[_Extent, Tested]],
        tried: dict[str, TriedInput],
        *,
        own: bool = False,
        named: str = "",
    ) -> None:
        """Run each case that has not failed yet, and remove what was drawn for it.

        Nothing is removed of the cases' `own` inputs. `named` is the one sample that
        all rows are of, where they do not name it.
        """
        steps = [(one, case) for one, case in steps if one.failure is None]
        if not steps:
            return
        running = self.engine.start([case for _, case in steps])
        for (one, _), record in zip(steps, running, strict=True):
            one.add(awaited(record), tried, named)
        if not own:
            self.engine.forget([case for _, case in steps])
        for one, _ in steps:
            part = replace(one.record, suite=path_of(self.suite))
            self.folder.keep_part(replace(part, failure=part.failure or UNENDED))


@dataclass(eq=False)
class _Extent:
    """The worst row of each value of one case, over all samples so far."""

    case: Tested
    policy: Policy
    ended: Future[CaseRecord] = field(default_factory=Future)
    usage: dict[str, float] = field(default_factory=dict)
    layers: set[str] = field(default_factory=set)
    failure: Failure | None = None
    _tried: dict[str, TriedInput] = field(default_factory=dict)
    _record: CaseRecord | None = None
    _rows: dict[tuple[str, str, str], tuple[float, Row]] = field(default_factory=dict)

    def add(self, record: CaseRecord, tried: dict[str, TriedInput], named: str) -> None:
        """Add the rows of one record, or its failure; see `ManyInputs._run`."""
        if record.failure is not None:
            self.failure = record.failure
        elif told := without_effect(record):  # bounds would be of another variant
            self.failure = Failure(outcome=told[0], message=told[1])
        before = self._record or record
        better = before.coverage is None and record.coverage is not None
        self._record = _joined(*((record, before) if better else (before, record)))
        if self.failure is not None:
            return
        rows = [row for row in as_read(record.rows) if row.what in GROUPS]
        if named:
            rows = [replace(row, sample=named) for row in rows]
        overflowed = {
            row.sample
            for row in rows
            if row.what != LAYERS and row.comparison.nonfinite_expected
        }
        for row in rows:
            if row.sample not in overflowed:
                self._add(row)
        self._tried |= {row.sample: tried[row.sample] for row in rows}

    def _add(self, row: Row) -> None:
        key = (row.what, row.probe, row.module)
        rule = self.policy.for_probe(
            (self.case.subject, self.case.backend, self.case.how),
            group=row.what,
            probe=row.probe,
            module=row.module,
        )
        comparison, is_output = row.comparison, row.what == OUTPUTS
        usage = judge(
            comparison,
            rule.tolerance.without_within(row.what),
            is_output=is_output,
            allow_misread=rule.allow_misread,
            # A hint without lines makes constant outputs, which are no error.
            allow_constant=is_output
            and comparison.expected_constant
            and comparison.actual_constant,
        ).usage
        if row.what == LAYERS:
            self.layers.add(row.sample)
        else:
            self.usage[row.sample] = max(usage, self.usage.get(row.sample, 0.0))
        if key in self._rows:
            most, known = self._rows[key]
            sample = row.sample if usage > most else known.sample
            usage = max(usage, most)
            extent = worse(known.comparison, comparison)
            row = replace(known, sample=sample, comparison=extent)
        self._rows[key] = (usage, row)

    @property
    def record(self) -> CaseRecord:
        """The record of all that was measured so far."""
        failure = self.failure
        if not self.usage and failure is None:
            failure = Failure(
                outcome=Outcome.REFERENCE,
                message="PyTorch's own outputs are finite on none of its inputs, so "
                "nothing can be compared with them.",
            )
        rows = [row for _, row in self._rows.values()]
        rows.sort(key=lambda row: (row.what, row.position))
        tried = [
            structs.replace(
                one,
                sample=replace(one.sample, layers=id_ in self.layers),
                usage=self.usage.get(id_),
            )
            for id_, one in self._tried.items()
        ]
        record = self._record or record_of(self.case)
        return replace(record, rows=tuple(rows), tried=tuple(tried), failure=failure)


def _joined(one: CaseRecord, other: CaseRecord) -> CaseRecord:
    """Return a record with what another one says of other samples."""
    if one is other:
        return one
    maps: dict[str, Any] = {
        name: {**(getattr(other, name) or {}), **(getattr(one, name) or {})}
        for name in ("inputs", "sizes", "observer_max_abs")
    }
    return replace(
        one,
        took_s=added(one.took_s or {}, other.took_s),
        peak_bytes=max(one.peak_bytes, other.peak_bytes),
        **maps,
    )


def _chunks(samples: Sequence[Sample], size: int) -> Iterator[Sequence[Sample]]:
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def _on(case: Case, samples: Iterable[Sample]) -> Case:
    """Return a case with other samples.

    The first sample of each graph comes before them. The graph is traced at its sizes,
    so the deployed files are the same as in an ordinary run.
    """
    first = (group.samples[0] for group in sample_groups(case, case.samples))
    anchors = (replace(sample, layers=False) for sample in first)
    return replace(case, samples=(*anchors, *samples))
