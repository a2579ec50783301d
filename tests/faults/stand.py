"""A test stand: cases through the harness's own stages, judged as shipped."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from harness.core.case import Case
from harness.core.entry import Entry
from harness.core.errors import ParityError, StageError
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Failure
from harness.core.runtime import exact
from harness.core.settings import Settings
from harness.engine import tasks
from harness.engine.artifacts import Artifacts
from harness.engine.deployed import Deployed, Reading
from harness.engine.engine import Engine, record_of
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.judge.case import CaseVerdict
from harness.suite.judge import Judge
from harness.suite.schema import Limits
from harness.suite.suite import load_suite
from tests.faults import inside
from tests.faults.digits import watched_digits
from tests.faults.peers import PEERS
from tests.faults.trial import Trial

LIMIT_S = 600.0


class WrappingEngine(Engine):
    """An engine with something between the runtime and the harness.

    Attributes:
        wrap: Makes a session of a session; None puts nothing between.

    """

    wrap: inside.Wrap | None = None

    def _job(self, case: Case, task: Any, *arguments: object, **rest: Any) -> JobResult:
        if self.wrap and task == tasks.RUN_CANDIDATE:
            task, arguments = inside.run_wrapped, (*arguments, self.wrap)
        return super()._job(case, task, *arguments, **rest)


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
        self.store = Store(root=root)
        self._engine = WrappingEngine(self.store, Limits(timeout_s=limit_s))
        # PATH may have a converter of its own, in which no fault is planted.
        self.artifacts = Artifacts(self.store, self._engine._worker_pool, None)
        self._engine._artifacts = self.artifacts
        self.peers = peers
        self.isolate = isolate
        self._judge = Judge.of(self.suite, Settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes."""
        self._engine.close()

    def case(self, component: str, backend: str, variant: str = "fp32") -> Case:
        """Return a case of the suite as shipped."""
        wanted = f"{component}/{backend}/{variant}"
        return next(case for case in self.suite.cases if case.id == wanted)

    def exported(self, case: Case) -> tuple[Entry, tuple[Reading, ...]]:
        """Return a case's graph, and its samples with their references."""
        ((_, graph, readings),) = self._engine._prepared(case)
        return graph, readings

    def deployed(self, case: Case, altered: Entry | None = None) -> Deployed:
        """Return a case's deployed file, made from its own graph or an altered one."""
        graph, readings = self.exported(case)
        return self.artifacts.deployed(case, altered or graph, readings)

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
        self._engine.wrap = wrap
        try:
            file = deployed() if deployed else self.deployed(case)
            record = self._record(case, file)
            # This is last, as in a run: a runtime's own refusal is the better message.
            record = replace(record, graphs=self._checked(case, altered))
            if self.isolate:
                record = self._isolated(case, record, file)
        except StageError as error:
            failure = Failure(outcome=error.outcome, message=str(error), log=error.log)
            record = record_of(case, failure=failure)
        told = self._told(case, file, wrap) if self.peers else {}
        return Trial(record=record, verdicts=self.judged(record), told=told)

    def judged(self, record: CaseRecord) -> tuple[CaseVerdict, ...]:
        """Judge a record by the suite's tolerances, as shipped."""
        return tuple(self._judge.check(record, what) for what in (LAYERS, OUTPUTS))

    def _record(self, case: Case, file: Deployed) -> CaseRecord:
        fields = self._engine.measured(case, [file])
        graph_error = max(
            float(reading.reference.meta["rewrite_max_abs"])
            for reading in file.readings
        )
        return record_of(case, rewrite_max_abs=graph_error, **fields)

    def _checked(
        self, case: Case, altered: Entry | None
    ) -> tuple[Mapping[str, object], ...]:
        """Return what a case's graph holds and says otherwise, as a run does."""
        graph = altered or self.exported(case)[0]
        return ({**self.artifacts.checked(case, graph), "exact": exact(case)},)

    def _isolated(self, case: Case, record: CaseRecord, file: Deployed) -> CaseRecord:
        """Run operators on the reference's inputs where layers part, as a run does."""
        verdict = self._judge.check(record, LAYERS)
        if verdict.outcome.passed or not verdict.rows:
            return record
        sample = (verdict.first or verdict.rows[0]).row.sample
        (reading,) = (r for r in file.readings if r.sample == sample)
        try:
            alone = replace(file, readings=(reading,))
            result = self._engine._job(case, tasks.RUN_ISOLATED, alone)
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
            return self._engine._job(case, inside.run_peers, file, wrap).value
        except StageError:
            return everyone
