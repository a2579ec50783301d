"""Measure one component's cases on many inputs; runs in a child process.

The reference of an input is recorded once, and every case is held against it there:
only extents come back. That of outputs alone is small, and kept for other processes of
the same component; layers make room for the next input's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import numpy as np

from harness.commands.tune.inputs import REALISTIC, Shapes, Space, baked, independent
from harness.commands.tune.kept import keep
from harness.commands.tune.plan import Candidate, Findings, Plan, Tried
from harness.commands.tune.search import Known, note, search
from harness.commands.tune.tally import Tally
from harness.core.case import VARIED, Device, Sample
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import Probe, load_probes
from harness.core.record import OUTPUTS, Row
from harness.engine.deployed import Deployed
from harness.engine.host import report_progress
from harness.engine.store import Store
from harness.measure.align import coverage_of, wanted_values
from harness.measure.compare import compare
from harness.measure.trace import OUTPUT, Trace, load_inputs, open_trace
from harness.recipes.inputs import draw
from harness.runtimes.candidate.candidate import Watcher, check_artifact, output_rows
from harness.runtimes.graph.onnx_graph import read_into
from harness.runtimes.pytorch.prepare import Work, ask_device
from harness.runtimes.pytorch.reference import record_reference
from harness.runtimes.session import Session, load_backend

if TYPE_CHECKING:
    Arrays = Mapping[str, np.ndarray]

THREADS = (1, 4)
"""Thread counts that outputs are also made with."""


def measure_component(plan: Plan) -> Findings:
    """Try every input that the plan asks for.

    Raises:
        StageError: A file is damaged, or a runtime refuses it or a run.

    """
    ask_device(plan.reference)
    with _Bench(plan) as bench:
        bench.measure()
        return bench.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """One sample with its inputs, and its reference in the scratch folder."""

    sample: Sample
    feeds: Arrays
    trace: Trace


class _Bench:
    """The network, its deployed files loaded, and what was found so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._start_s = time.perf_counter()
        self.tried: dict[str, Tried] = {}
        self.overflowed: list[str] = []
        self.tallies = {c.case: Tally(c.limit) for c in plan.candidates}
        self._space = Space(
            component=plan.component, shapes=plan.shapes, seed=plan.effort.seed
        )
        self._work = self._new_work()
        self._stack = ExitStack()
        self._loaded = self._stack.enter_context(ExitStack())
        self._sessions: dict[tuple[str, Shapes], Session] = {}
        self._readers: dict[Path, Mapping[str, Sequence[str]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def findings(self) -> Findings:
        """What was found so far."""
        return Findings(
            tried=tuple(self.tried.values()),
            overflowed=tuple(self.overflowed),
            cases={case: tally.measured() for case, tally in self.tallies.items()},
            took_s=time.perf_counter() - self._start_s,
        )

    def _keep(self) -> None:
        """Leave what was found; of several cases each is measured again, alone."""
        if len(self.plan.candidates) == 1:
            keep(self.plan, self.findings)

    def _new_work(self) -> Work:
        plan = self.plan
        store = Store(root=plan.root)
        return Work(store, plan.component, plan.export, plan.reference)

    @cached_property
    def _scratch(self) -> Path:
        return Path(self._stack.enter_context(TemporaryDirectory(dir=self.plan.kept)))

    def measure(self) -> None:
        """Go through outputs, then where they are worst, layers and circumstances."""
        plan, effort = self.plan, self.plan.effort
        wide = tuple(c for c in plan.candidates if c.wide)
        for reading in plan.readings.values():
            check_artifact(reading.inputs)
            check_artifact(reading.reference)
        for sample in plan.suite:
            # What an earlier tuning kept has a label of its own.
            why = "kept" if sample.label else "suite"
            self._outputs(sample, self._asked(sample), why)
        for family, candidates in ((REALISTIC, plan.candidates), (VARIED, wide)):
            if not candidates:
                continue
            known: Known = {}
            for sample in independent(self._space, family, effort.samples):
                note(known, sample, self._outputs(sample, candidates, "independent"))
            measure = partial(self._outputs, candidates=candidates, why="searched")
            search(self._space, family, effort.searched, measure, known)
        if len(self.overflowed) == len(self.tried):
            msg = (
                f"{plan.component.name}: PyTorch's own outputs are finite on none of "
                f"{len(self.tried)} inputs, so nothing can be held against them."
            )
            raise StageError(msg, outcome=Outcome.REFERENCE)
        self._keep()
        self._layers(wide)
        self._noise()

    def _asked(self, sample: Sample) -> tuple[Candidate, ...]:
        """Return the candidates that a sample of the suite is for."""
        return tuple(
            c for c in self.plan.candidates if c.wide or sample.profile == REALISTIC
        )

    def _outputs(
        self, sample: Sample, candidates: Iterable[Candidate], why: str
    ) -> dict[str, float]:
        """Hold outputs against the reference; return a score for each case."""
        if there := self.tried.get(sample.id):
            if (there.why, why) == ("kept", "independent"):
                # Drawn again by the same seed: it counts among the draws.
                self.tried[sample.id] = replace(there, why=why)
            return {}
        self.tried[sample.id] = Tried(sample=sample, why=why)
        self._say(f"{len(self.tried)} inputs, {why} {sample.profile}")
        drawn = self._drawn(sample, layers=False)
        if drawn is None:
            return {}
        scores = {}
        for candidate in candidates:
            made = self._session(candidate, sample).run(drawn.feeds)
            rows = output_rows(sample.id, made, drawn.trace)
            usage = self.tallies[candidate.case].outputs(rows)
            scores[candidate.case] = float(np.log10(max(usage, 1e-12)))
        return scores

    def _drawn(self, sample: Sample, *, layers: bool) -> _Drawn | None:
        """Return a sample's inputs and reference; None where that is not finite."""
        component = self.plan.component
        reading = self.plan.readings.get(sample)
        if reading is not None and (reading.layers or not layers):
            feeds = load_inputs(reading.inputs, component)
            trace = open_trace(reading.reference.path)
        else:
            feeds = draw(component, sample)
            trace = self._recorded(sample, feeds, layers=layers)
        names = [OUTPUT + spec.name for spec in component.outputs]
        if not all(np.isfinite(trace[name]).all() for name in names):
            if sample.id not in self.overflowed:
                self.overflowed.append(sample.id)
            return None
        return _Drawn(sample=sample, feeds=feeds, trace=trace)

    def _recorded(self, sample: Sample, feeds: Arrays, *, layers: bool) -> Trace:
        """Return a sample's reference: with layers, in place of the last one's."""
        kept = self.plan.kept / quote(sample.id, safe="")
        if not layers and kept.is_dir():
            return open_trace(kept)
        group = self.plan.groups[baked(sample.shapes, self.plan.export)]
        exported = self._work.exported(group)
        for old in self._scratch.iterdir():
            old.unlink()
        record_reference(
            self._work.module,
            exported.program,
            self.plan.component,
            feeds,
            self._scratch,
            device=self.plan.reference.device,
            layers=layers,
            wanted={p.name for p in wanted_values(exported.probes).values()},
            twice=False,  # the suite's own samples have shown that it is not random
        )
        if layers:
            return open_trace(self._scratch)
        # Only what is whole has the name that is looked for.
        self._scratch.rename(kept)
        self._scratch.mkdir()
        return open_trace(kept)

    def _layers(self, wide: Sequence[Candidate]) -> None:
        """Compare layers where the suite does, on some draws and on the worst."""
        every = self.plan.candidates
        wanted: dict[str, tuple[Candidate, ...]] = {}
        for tried in self.tried.values():
            sample = tried.sample
            if tried.why in {"suite", "kept"} and sample.layers:
                wanted[sample.id] = self._asked(sample)
        for family, candidates in ((REALISTIC, every), (VARIED, tuple(wide))):
            draws = [
                tried.sample.id
                for tried in self.tried.values()
                if tried.why == "independent" and tried.sample.profile == family
            ]
            for name in draws[: self.plan.effort.layers]:
                wanted[name] = tuple(candidates)
        for tally in self.tallies.values():
            # What is worst for one build is near that for its kin, in layers at least.
            tried = self.tried[tally.worst]
            if tried.why == "suite" and not tried.sample.layers:
                continue  # too large to watch, as the suite says
            wanted[tried.sample.id] = self._asked(tried.sample)
        for done, (name, candidates) in enumerate(wanted.items(), start=1):
            self._say(f"layers of {name}, {done} of {len(wanted)}")
            drawn = self._drawn(self.tried[name].sample, layers=True)
            if drawn is None:
                continue
            for candidate in candidates:
                self._watch(candidate, drawn, moved=done <= self.plan.effort.noise)
            self._keep()

    def _watch(self, candidate: Candidate, drawn: _Drawn, *, moved: bool) -> None:
        file = self._file(candidate, drawn.sample)
        probes: tuple[Probe, ...] = load_probes(file.probes)
        if file.graph not in self._readers:
            self._readers[file.graph] = read_into(file.graph)
        watcher = Watcher(drawn.sample.id, drawn.trace, probes, described=0)
        session = self._session(candidate, drawn.sample)
        made = session.watch(drawn.feeds, watcher.sizes, watcher.on_value)
        tally = self.tallies[candidate.case]
        coverage = coverage_of(probes, watcher.compared, self._readers[file.graph])
        tally.layers(drawn.sample.id, watcher.rows(), asdict(coverage))
        if moved:
            # Watching takes the optimiser away, which is the other end of its levels.
            usual = session.run(drawn.feeds)
            _again(tally, drawn, usual, made, "watched")

    def _noise(self) -> None:
        """Make outputs again, and with other thread counts; these bound as well.

        With PyTorch gone and one session at a time, for each may fill the memory.
        """
        self._loaded.close()
        self._sessions.clear()
        self._work = self._new_work()
        gc.collect()  # a program and its module hold each other
        first = list(self.tried)
        for candidate in self.plan.candidates:
            self._say(f"repeats and threads of {candidate.case}")
            names = dict.fromkeys([self.tallies[candidate.case].worst, *first])
            for name in list(names)[: self.plan.effort.noise]:
                drawn = self._drawn(self.tried[name].sample, layers=False)
                if drawn is not None:
                    self._repeat(candidate, drawn)

    def _repeat(self, candidate: Candidate, drawn: _Drawn) -> None:
        tally = self.tallies[candidate.case]
        with self._open(candidate, drawn.sample, candidate.device) as session:
            usual = session.run(drawn.feeds)
            again = session.run(drawn.feeds)
        _again(tally, drawn, usual, again, "repeat")
        for threads in THREADS:
            device = replace(candidate.device, threads=threads)
            with self._open(candidate, drawn.sample, device) as session:
                other = session.run(drawn.feeds)
            _again(tally, drawn, usual, other, f"threads {threads}")

    def _file(self, candidate: Candidate, sample: Sample) -> Deployed:
        return candidate.files[baked(sample.shapes, self.plan.export)]

    def _open(
        self, candidate: Candidate, sample: Sample, device: Device
    ) -> AbstractContextManager[Session]:
        file = self._file(candidate, sample)
        outputs = [spec.name for spec in self.plan.component.outputs]
        path = file.artifact.file(file.model)
        return load_backend(candidate.backend).open_session(path, device, outputs)

    def _session(self, candidate: Candidate, sample: Sample) -> Session:
        """Return the session of a file; the first use checks and loads it."""
        key = (candidate.case, baked(sample.shapes, self.plan.export))
        if key not in self._sessions:
            check_artifact(self._file(candidate, sample).artifact)
            opened = self._open(candidate, sample, candidate.device)
            self._sessions[key] = self._loaded.enter_context(opened)
            self.tallies[candidate.case].ran(self._sessions[key].ran)
        return self._sessions[key]

    def _say(self, detail: str) -> None:
        report_progress("tuning", self.plan.component.name, detail)


def _again(tally: Tally, drawn: _Drawn, usual: Arrays, made: Arrays, kind: str) -> None:
    """Take outputs made under other circumstances: they bound, and tell the noise."""
    tally.also(output_rows(drawn.sample.id, made, drawn.trace))
    tally.noise(kind, _moved(drawn, usual, made))


def _moved(drawn: _Drawn, usual: Arrays, made: Arrays) -> list[Row]:
    """Hold outputs against those of the session as deployed."""
    return [
        replace(
            row,
            comparison=compare(
                expected=usual[row.probe],
                actual=made[row.probe],
                floor_rms=drawn.trace.floor_rms(OUTPUT + row.probe),
            ),
        )
        for row in output_rows(drawn.sample.id, made, drawn.trace)
        if row.what == OUTPUTS
    ]
