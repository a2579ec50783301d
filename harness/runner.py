"""A run: a suite's cases through the engine, their records judged one by one.

The pytest plugin and the command line both stand on this; neither decides anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from harness.backends import DISTRIBUTIONS
from harness.closes import Closes
from harness.e2e.plan import Chain
from harness.errors import ParityError
from harness.gaps import Gap, load_gaps
from harness.outcome import Outcome
from harness.pipeline import Engine
from harness.policy import Policy
from harness.report.judged import CaseVerdict, judge_case
from harness.report.next_steps import NextSteps
from harness.report.record import LAYERS, CaseRecord, Failure
from harness.report.run_folder import PICTURES, RunFolder
from harness.report.text import count
from harness.stale import refuse_stale
from harness.store import Store, default_root
from harness.suite import Suite, Tested
from harness.tolerance import parse_changes
from harness.workshop import Progress

MODULES = {"onnxruntime": "onnxruntime", "mnn": "MNN"}
"""Backend to the module that it needs."""

Asked = tuple[str, str, str]
"""Path of a suite, id of a case, and which of its checks."""


RUNS = "reports/runs"
"""Where runs are, from the folder that one works in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for on the command line; text and paths only.

    Attributes:
        store: Folder of artifacts; empty for the default.
        runs: Folder of reports.
        tier: Holds every value to this tier; empty for tolerances.toml.
        changes: ``rtol=1e-3`` and the like, for every tolerance.
        require: Backends that must be there; missing ones fail, not skip.
        jobs: Cases in progress at once; 0 for what the suite says.
        mnn_convert: Native converter; empty for one on PATH or the wheel's.
        baseline: Name or path of the baseline to hold the run against; empty for none.
        isolate: Whether operators run on the reference's own inputs in every case, and
            not only where layers part.

    """

    store: str = ""
    runs: str = RUNS
    tier: str = ""
    changes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    jobs: int = 0
    mnn_convert: str = ""
    baseline: str = ""
    isolate: bool = False

    def next_steps(self, run: str, suite: Path | None = None) -> NextSteps:
        """Return how the commands after a run ask the same of it.

        Args:
            run: Its name.
            suite: Given in the place of its own.

        """
        changes = "".join(f" --set {shlex.quote(change)}" for change in self.changes)
        runs = near(Path(self.runs))
        return NextSteps(
            run=run,
            judged=(f" --tier {self.tier}" if self.tier else "") + changes,
            runs="" if runs == RUNS else f" --runs {shlex.quote(runs)}",
            store=f" --store {shlex.quote(self.store)}" if self.store else "",
            suite=f" --suite {shlex.quote(str(suite))}" if suite else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A suite's tolerances and gaps, ready to judge its records."""

    policy: Policy
    gaps: tuple[Gap, ...]
    min_coverage: float

    @classmethod
    def of(cls, suite: Suite, settings: Settings) -> Judge:
        """Read the files beside a suite, with the command line's changes.

        Raises:
            SuiteError: A file is missing or wrong.
            SpecError: A change names no bound or tier.

        """
        policy = Policy.load(suite.tolerances_path)
        refuse_stale(suite, policy)
        if settings.tier:
            policy = policy.with_tier(settings.tier)
        if settings.changes:
            policy = policy.with_changes(parse_changes(settings.changes))
        gaps = load_gaps(suite.gaps_path) if suite.gaps_path.is_file() else ()
        return cls(policy=policy, gaps=gaps, min_coverage=suite.limits.coverage)

    def require(self, asked: Iterable[tuple[Tested, str]]) -> None:
        """Refuse checks without a tolerance, while it costs nothing to know.

        Raises:
            SuiteError: One of them has none.

        """
        for case, what in asked:
            named = (case.subject, case.backend, case.how)
            self.policy.require(named, what, _made_of(case))

    def check(self, record: CaseRecord, what: str) -> CaseVerdict:
        """Judge one check of a record."""
        return judge_case(
            record,
            what,
            self.policy,
            self.gaps,
            min_coverage=self.min_coverage,
            today=datetime.now(tz=UTC).date(),
        )


class Run(Closes):
    """One run of a suite; a context manager, for it owns child processes."""

    def __init__(
        self,
        suite: Suite,
        settings: Settings,
        folder: Callable[[], RunFolder],
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.suite = suite
        self.settings = settings
        self.judge = Judge.of(suite, settings)
        self.store = open_store(settings.store)
        # After what may refuse: a run that cannot begin leaves no folder.
        self.folder = folder()
        self._engine = Engine(
            self.store,
            replace(suite.limits, jobs=settings.jobs or suite.limits.jobs),
            mnn_convert=settings.mnn_convert or None,
            pictures=self.folder.path / PICTURES,
            on_progress=on_progress,
        )
        self._started: dict[str, Future[CaseRecord]] = {}

    def close(self) -> None:
        """End child processes; what is running is given up, and leaves nothing."""
        self._engine.close()
        self.store.sweep()

    def make(self, cases: Iterable[Tested]) -> None:
        """Make all that the cases need and the store lacks."""
        self._engine.make(case for case in cases if not missing(case))

    def start(self, cases: Iterable[Tested]) -> None:
        """Begin cases in the background, in order, as there is room."""
        for case in cases:
            if case.id not in self._started and not missing(case):
                self._started[case.id] = self._engine.submit(case)
        for started in list(self._started.values()):
            started.add_done_callback(self._rest_if_done)

    def _rest_if_done(self, _: Future[CaseRecord]) -> None:
        if all(started.done() for started in self._started.values()):
            self._engine.rest()

    def record(self, case: Tested) -> CaseRecord:
        """Return a case's record, running it if no process of this run has."""

        def make() -> CaseRecord:
            if missing(case):
                return _unavailable(case)
            started = self._started.get(case.id)
            record = started.result() if started else self._engine.run(case)
            return self._localised(case, record)

        return self.folder.record_once((path_of(self.suite), case.id), make)

    def _localised(self, case: Tested, record: CaseRecord) -> CaseRecord:
        """Add what each operator introduces, where layers part or it was asked for."""
        if isinstance(case, Chain) or record.failure or LAYERS not in case.whats:
            return record
        verdict = self.judge.check(record, LAYERS)
        wanted = self.settings.isolate or not verdict.outcome.passed
        if not wanted or not verdict.rows:
            return record
        shown = verdict.first or verdict.rows[0]
        sample = next(s for s in case.samples if s.id == shown.row.sample)
        try:
            rows = self._engine.isolate(case, sample)
        except ParityError as error:
            # What was measured stands; why there is no more of it belongs to it.
            return replace(record, log=f"{record.log}\n{error}")
        return replace(record, rows=(*record.rows, *rows))

    def check(self, case: Tested, what: str) -> CaseVerdict:
        """Run one check of a case and judge it."""
        return self.judge.check(self.record(case), what)

    def verdicts(self, case: Tested) -> list[CaseVerdict]:
        """Run a case and judge every check that its record answers."""
        record = self.record(case)
        return [self.judge.check(record, what) for what in case.whats]


def missing(case: Tested) -> tuple[str, ...]:
    """Return the runtimes of a case that are not installed here."""
    return tuple(name for name in case.runtimes if find_spec(MODULES[name]) is None)


def _unavailable(case: Tested) -> CaseRecord:
    name = missing(case)[0]
    packages = " or ".join(DISTRIBUTIONS[name])
    message = f"{name} is not installed (pip install {packages})"
    return CaseRecord(
        case=case.id,
        component=case.subject,
        backend=case.backend,
        variant=case.how,
        asked=asdict(case.device),
        failure=Failure(outcome=Outcome.UNAVAILABLE, message=message),
    )


def _made_of(case: Tested) -> tuple[str, ...]:
    """Return the built-in variants that a case is made of."""
    seated = [one for _, one in case.seats] if isinstance(case, Chain) else [case]
    return tuple(f"{one.backend}.{one.variant.kind}" for one in seated if one)


def path_of(suite: Suite) -> str:
    """Return a suite's path as records hold it: in full, whatever was given."""
    return str(suite.path.resolve())


def open_store(root: str) -> Store:
    """Open the store at `root`, or the user's own for an empty one."""
    return Store(root=Path(root).expanduser() if root else default_root())


def header(suite: Suite, cases: Collection[Tested], store: Store) -> str:
    """Return the line that says what is going to run."""
    chains = [case for case in cases if isinstance(case, Chain)]
    parts = [case for case in cases if not isinstance(case, Chain)]
    sides = {
        "component": {case.subject for case in parts},
        "pipeline": {case.subject for case in chains},
        "backend": {name for case in cases for name in case.runtimes},
        "variant": {case.how for case in parts or chains},
    }
    size = sum(entry.size_bytes for entry in store.entries()) / 2**20
    matrix = " × ".join(
        count(len(names), noun) for noun, names in sides.items() if names
    )
    megabytes = f"{size:,.0f}" if round(size) else f"{size:.1f}"
    return (
        f"parity: {near(suite.path)} · {matrix}, {count(len(cases), 'case')} · "
        f"store {megabytes} MB"
    )


def asked_of(suite: Suite, cases: Collection[Tested] | None = None) -> set[Asked]:
    """Return every check of a suite, or of some of its cases."""
    return {
        (path_of(suite), case.id, what)
        for case in (suite.tested if cases is None else cases)
        for what in case.whats
    }


def near(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
