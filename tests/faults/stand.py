"""Digits' cases on a test stand: plant a fault, run the harness's stages, judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import onnx

from harness import export_files, stages
from harness.deployed import Deployed
from harness.digest import digest_value
from harness.entry import Entry
from harness.errors import ParityError, StageError
from harness.groups import sample_groups
from harness.makers import Makers
from harness.outcome import Outcome
from harness.pipeline import check_words
from harness.probes import load_probes
from harness.align import wanted_values
from harness.report.judged import CaseVerdict
from harness.report.record import LAYERS, OUTPUTS, CaseRecord, Failure
from harness.runner import Judge, Settings
from harness.spec import Case
from harness.store import Store
from harness.suite import load_suite
from harness.workshop import Workshop
from tests.faults import inside
from tests.faults.catalogue.fault import Fault, InGraph
from tests.faults.peers import PEERS

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"
CATALOGUE = Path(__file__).with_name("catalogue")
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one case ended, with or without a fault.

    Attributes:
        record: As a run keeps it.
        verdicts: Of its checks.
        place: The program's value that the fault makes wrong; empty without one.
        peers: Rule of a peer to whether it tells.

    """

    record: CaseRecord
    verdicts: tuple[CaseVerdict, ...]
    place: str = ""
    peers: Mapping[str, bool] = field(default_factory=dict)

    @property
    def caught(self) -> bool:
        """Whether any check failed."""
        return any(not verdict.outcome.passed for verdict in self.verdicts)

    @property
    def blamed(self) -> tuple[str, ...]:
        """First divergence, and the first operator whose own error is out."""
        return tuple(
            judged.row.probe
            for verdict in self.verdicts
            for judged in (verdict.first, *verdict.origins[:1])
            if judged is not None and judged.row.what != OUTPUTS
        )

    @property
    def localised(self) -> bool:
        """Whether the blame falls on the fault's place exactly."""
        return self.place in self.blamed

    @property
    def said(self) -> str:
        """Everything that the harness says of the case."""
        return said(self.record, self.verdicts)


def said(record: CaseRecord, verdicts: Sequence[CaseVerdict]) -> str:
    """Return all the words that a failing case is printed with."""
    words = [record.failure.message] if record.failure else []
    for verdict in verdicts:
        if not verdict.outcome.passed:
            words += [str(verdict.outcome), verdict.reason, verdict.sentence]
    return "\n".join(words)


class Stand:
    """Runs trials; a context manager, for it owns child processes.

    Args:
        root: Store of exports, references and of what faults are planted in.

    """

    def __init__(self, root: Path) -> None:
        self.suite = load_suite(DIGITS)
        self._workshop = Workshop(LIMIT_S)
        self._store = Store(root=root)
        self._makers = Makers(self._store, self._workshop, None)
        self._judge = Judge.of(self.suite, Settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes."""
        self._workshop.close()

    def case(self, component: str, backend: str, variant: str = "fp32") -> Case:
        """Return a case of digits as shipped."""
        wanted = f"{component}/{backend}/{variant}"
        return next(case for case in self.suite.cases if case.id == wanted)

    def plant(self, fault: Fault, backend: str, *, peers: bool = False) -> Trial:
        """Run a case with a fault in it."""
        case = self.case(fault.component, backend, fault.variant)
        plant = fault.plant
        place = ""

        def deployed() -> tuple[Deployed, ...]:
            nonlocal place
            files = []
            for graph, readings in self._exports(case):
                entry = graph
                if isinstance(plant, InGraph):
                    entry, place = self._planted(fault.name, graph, plant)
                files.append(self._deployed(case, entry, graph, readings))
            return tuple(files)

        trial = self._trial(case, deployed, peers=peers)
        return replace(trial, place=place)

    def _exports(self, case: Case):
        prepared = self._makers.prepare(case, case.samples)
        for group in sample_groups(case, case.samples):
            readings = tuple(prepared[sample] for sample in group.samples)
            yield self._makers.graph(case, group), readings

    def _planted(self, name: str, graph: Entry, plant: InGraph) -> tuple[Entry, str]:
        model = onnx.load(graph.file(export_files.MODEL))
        value = plant.change(model)

        def build(folder: Path) -> Mapping[str, object]:
            onnx.save(model, folder / export_files.MODEL)
            probes = graph.file(export_files.PROBES).read_bytes()
            (folder / export_files.PROBES).write_bytes(probes)
            return {}

        key = {"fault": name, "graph": graph.key_digest, "how": _catalogue_digest()}
        entry = self._store.make("onnx", key, build)
        probes = load_probes(graph.file(export_files.PROBES))
        return entry, wanted_values(probes)[value].name if value else ""

    def _deployed(self, case, entry, graph, readings) -> Deployed:
        artifact, model = self._makers.deploy(case, entry)
        return Deployed(
            artifact=artifact,
            model=model,
            probes=graph.file(export_files.PROBES),
            readings=readings,
        )

    def _trial(
        self,
        case: Case,
        deployed: Callable[[], tuple[Deployed, ...]],
        wrap: inside.Wrap | None = None,
        *,
        peers: bool,
    ) -> Trial:
        files: tuple[Deployed, ...] = ()
        try:
            files = deployed()
            record = self._record(case, files, wrap)
        except StageError as error:
            failure = Failure(outcome=error.outcome, message=str(error), log=error.log)
            record = _known(case, failure=failure)
        record = self._localised(case, record, files)
        verdicts = tuple(self._judge.check(record, what) for what in (LAYERS, OUTPUTS))
        told = self._peers(case, files, wrap) if peers else {}
        return Trial(record=record, verdicts=verdicts, peers=told)

    def _record(self, case, files, wrap) -> CaseRecord:
        stage = inside.run_wrapped if wrap else stages.run_candidate
        extra = (wrap,) if wrap else ()
        result = self._job(case, stage, case.id, case.component, case.device, case.backend, files, *extra)
        check_words(case.id, case.backend, case.device, f"{result.import_log}\n{result.log}")
        return _known(case, **result.value)

    def _localised(self, case, record, files) -> CaseRecord:
        """Run operators on the reference's inputs where layers part, as a run does."""
        verdict = self._judge.check(record, LAYERS)
        if record.failure or verdict.outcome.passed or not verdict.rows:
            return record
        sample = (verdict.first or verdict.rows[0]).row.sample
        file = next(
            replace(file, readings=(reading,))
            for file in files
            for reading in file.readings
            if reading.sample == sample
        )
        try:
            result = self._job(case, stages.run_isolated, case.id, case.component, case.device, case.backend, file)
        except ParityError as error:
            return replace(record, log=f"{record.log}\n{error}")
        return replace(record, rows=(*record.rows, *result.value))

    def _peers(self, case, files, wrap) -> Mapping[str, bool]:
        if not files:  # there is no file to run: everyone sees that
            return dict.fromkeys(PEERS, True)
        try:
            result = self._job(case, inside.run_peers, case.component, case.device, case.backend, files, wrap)
        except StageError:
            return dict.fromkeys(PEERS, True)
        return result.value

    def _job(self, case: Case, function, *arguments):
        return self._workshop.job(
            case.backend,
            function,
            *arguments,
            subject=case.id,
            label=case.id,
            failure=Outcome.RUN,
        )


def _known(case: Case, **more) -> CaseRecord:
    return CaseRecord(
        case=case.id,
        component=case.subject,
        backend=case.backend,
        variant=case.how,
        asked=asdict(case.device),
        **more,
    )


def _catalogue_digest() -> str:
    return digest_value([p.read_text() for p in sorted(CATALOGUE.glob("*.py"))])
