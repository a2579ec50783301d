"""A test stand: cases through the harness's own stages, judged as shipped."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from harness.core.case import Case, sample_groups
from harness.core.entry import Entry
from harness.core.errors import ParityError, StageError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Failure
from harness.core.runtime import exact
from harness.core.settings import Settings
from harness.engine import export_files, tasks
from harness.engine.artifacts import Artifacts
from harness.engine.deployed import Deployed, Reading
from harness.engine.engine import check_words
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.engine.worker_pool import WorkerPool
from harness.judge.case import CaseVerdict
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.faults import inside
from tests.faults.digits import watched_digits
from tests.faults.peers import PEERS
from tests.faults.trial import Trial

LIMIT_S = 600.0


class Stand:
    """Runs trials; a context manager, for it owns child processes.

    Args:
        root: Store of exports, references and what faults are planted in.
        limit_s: Of one stage.
        peers: Whether to ask what the peers' rules say.
        isolate: Whether to run operators alone where layers part, to blame one.
        suite: Folder of the suite whose cases are run; None for digits.

    """

    def __init__(
        self,
        root: Path,
        *,
        limit_s: float = LIMIT_S,
        peers: bool = False,
        isolate: bool = True,
        suite: Path | None = None,
    ) -> None:
        self.suite = load_suite(suite or watched_digits())
        self.worker_pool = WorkerPool(limit_s)
        self.store = Store(root=root)
        self.artifacts = Artifacts(self.store, self.worker_pool, None)
        self.peers = peers
        self.isolate = isolate
        self._judge = Judge.of(self.suite, Settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes."""
        self.worker_pool.close()

    def case(self, component: str, backend: str, variant: str = "fp32") -> Case:
        """Return a case of the suite as shipped."""
        wanted = f"{component}/{backend}/{variant}"
        return next(case for case in self.suite.cases if case.id == wanted)

    def exported(self, case: Case) -> tuple[Entry, tuple[Reading, ...]]:
        """Return a case's graph, and its samples with their references."""
        prepared = self.artifacts.prepare(case, case.samples)
        (group,) = sample_groups(case, case.samples)
        readings = tuple(prepared[sample] for sample in group.samples)
        return self.artifacts.graph(case, group), readings

    def deployed(self, case: Case, altered: Entry | None = None) -> Deployed:
        """Return a case's deployed file, made from its own graph or an altered one."""
        graph, readings = self.exported(case)
        artifact, model = self.artifacts.deploy(case, altered or graph)
        return Deployed(
            artifact=artifact,
            model=model,
            probes=(altered or graph).file(export_files.PROBES),
            readings=readings,
        )

    def run(
        self,
        case: Case,
        deployed: Callable[[], Deployed] | None = None,
        wrap: inside.Wrap | None = None,
        altered: Entry | None = None,
    ) -> Trial:
        """Run a case to its verdicts.

        Args:
            case: Of the suite.
            deployed: Gives the file, if it is not the right one.
            wrap: Comes between the runtime and the harness.
            altered: The graph that the file is made from, if not the right one.

        """
        file = None
        try:
            file = deployed() if deployed else self.deployed(case)
            record = replace(
                self._record(case, file, wrap), graphs=self._checked(case, altered)
            )
            if self.isolate:
                record = self._isolated(case, record, file)
        except StageError as error:
            failure = Failure(outcome=error.outcome, message=str(error), log=error.log)
            record = _known(case, failure=failure)
        told = self._told(case, file, wrap) if self.peers else {}
        return Trial(record=record, verdicts=self.judged(record), told=told)

    def judged(self, record: CaseRecord) -> tuple[CaseVerdict, ...]:
        """Judge a record by the suite's tolerances, as shipped."""
        return tuple(self._judge.check(record, what) for what in (LAYERS, OUTPUTS))

    def _record(
        self, case: Case, file: Deployed, wrap: inside.Wrap | None
    ) -> CaseRecord:
        result = self._job(
            case,
            inside.run_wrapped if wrap else tasks.RUN_CANDIDATE,
            case.id,
            case.component,
            case.device,
            case.backend,
            (file,),
            *([wrap] if wrap else ()),
        )
        said = f"{result.import_log}\n{result.log}"
        check_words(case.id, case.backend, case.device, said)
        graph_error = max(
            float(reading.reference.meta["rewrite_max_abs"])
            for reading in file.readings
        )
        return _known(case, rewrite_max_abs=graph_error, **result.value)

    def _checked(
        self, case: Case, altered: Entry | None
    ) -> tuple[Mapping[str, object], ...]:
        """Return what a case's graph holds and says otherwise, as a run does."""
        if not exact(case):
            return ()
        graph = altered or self.exported(case)[0]
        return (self.artifacts.checked(case, graph),)

    def _isolated(self, case: Case, record: CaseRecord, file: Deployed) -> CaseRecord:
        """Run operators on the reference's inputs where layers part, as a run does."""
        verdict = self._judge.check(record, LAYERS)
        if verdict.outcome.passed or not verdict.rows:
            return record
        sample = (verdict.first or verdict.rows[0]).row.sample
        (reading,) = (r for r in file.readings if r.sample == sample)
        try:
            result = self._job(
                case,
                tasks.RUN_ISOLATED,
                case.id,
                case.component,
                case.device,
                case.backend,
                replace(file, readings=(reading,)),
            )
        except ParityError as error:
            return replace(record, log=f"{record.log}\n{error}")
        return replace(record, rows=(*record.rows, *result.value))

    def _told(
        self, case: Case, file: Deployed | None, wrap: inside.Wrap | None
    ) -> Mapping[str, Mapping[str, bool]]:
        everyone = {"all": dict.fromkeys(PEERS, True)}
        if file is None:  # nothing came out that could be run, and everyone sees that
            return everyone
        try:
            result = self._job(
                case,
                inside.run_peers,
                case.component,
                case.device,
                case.backend,
                file,
                wrap,
            )
        except StageError:
            return everyone
        return result.value

    def _job(
        self, case: Case, function: Callable[..., object], *arguments: object
    ) -> JobResult:
        return self.worker_pool.job(
            case.backend,
            function,
            *arguments,
            subject=case.id,
            label=case.id,
            failure=Outcome.RUN,
        )


def _known(case: Case, **more: Any) -> CaseRecord:
    return CaseRecord(
        case=case.id,
        component=case.subject,
        backend=case.backend,
        variant=case.how,
        asked=asdict(case.device),
        **more,
    )
