"""A run: a suite's cases through the engine, their records judged one by one.

The pytest plugin and the command line both stand on this; neither decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.backends import DISTRIBUTIONS
from harness.gaps import Gap, load_gaps
from harness.outcome import Outcome
from harness.pipeline import Engine, Progress
from harness.policy import Policy, parse_changes
from harness.report.judged import CaseVerdict, judge_case
from harness.report.record import LAYERS, OUTPUTS, CaseRecord, Failure
from harness.report.run_folder import RunFolder
from harness.report.text import count
from harness.spec import Case
from harness.store import Store, default_root
from harness.suite import Suite

MODULES = {"onnxruntime": "onnxruntime", "mnn": "MNN"}
"""Backend to the module that it needs."""

Asked = tuple[str, str, str]
"""Path of a suite, id of a case, and which of its checks."""


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

    """

    store: str = ""
    runs: str = "reports/runs"
    tier: str = ""
    changes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    jobs: int = 0
    mnn_convert: str = ""


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
        variants: dict[str, set[str]] = {}
        for case in suite.cases:
            variants.setdefault(case.backend, set()).add(case.variant.name)
        policy.check_names([c.name for c in suite.components], variants)
        if settings.tier:
            policy = policy.with_tier(settings.tier)
        if settings.changes:
            policy = policy.with_changes(parse_changes(settings.changes))
        gaps = load_gaps(suite.gaps_path) if suite.gaps_path.is_file() else ()
        return cls(policy=policy, gaps=gaps, min_coverage=suite.limits.coverage)

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


class Run:
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
            timeout_s=suite.limits.timeout_s,
            jobs=settings.jobs or suite.limits.jobs,
            mnn_convert=settings.mnn_convert or None,
            on_progress=on_progress,
        )
        self._started: dict[str, Future[CaseRecord]] = {}

    def __enter__(self) -> Self:
        """Return the run itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End child processes."""
        self.close()

    def close(self) -> None:
        """End child processes; what is running is given up, and leaves nothing."""
        self._engine.close()
        self.store.sweep()

    def make(self, cases: Iterable[Case]) -> None:
        """Make all that the cases need and the store lacks."""
        self._engine.make(case for case in cases if not missing(case))

    def start(self, cases: Iterable[Case]) -> None:
        """Begin cases in the background, in order, as there is room."""
        for case in cases:
            if case.id not in self._started and not missing(case):
                self._started[case.id] = self._engine.submit(case)

    def record(self, case: Case) -> CaseRecord:
        """Return a case's record, running it if no process of this run has."""

        def make() -> CaseRecord:
            if missing(case):
                return _unavailable(case)
            started = self._started.get(case.id)
            return started.result() if started else self._engine.run(case)

        return self.folder.record_once((path_of(self.suite), case.id), make)

    def check(self, case: Case, what: str) -> CaseVerdict:
        """Run one check of a case and judge it."""
        return self.judge.check(self.record(case), what)

    def verdicts(self, case: Case) -> list[CaseVerdict]:
        """Run a case and judge every check that its record answers."""
        record = self.record(case)
        return [self.judge.check(record, what) for what in whats_of(case)]


def missing(case: Case) -> bool:
    """Whether a case's runtime is not installed here."""
    return find_spec(MODULES[case.backend]) is None


def _unavailable(case: Case) -> CaseRecord:
    packages = " or ".join(DISTRIBUTIONS[case.backend])
    message = f"{case.backend} is not installed (pip install {packages})"
    return CaseRecord(
        case=case.id,
        component=case.component.name,
        backend=case.backend,
        variant=case.variant.name,
        asked=asdict(case.device),
        failure=Failure(outcome=Outcome.UNAVAILABLE, message=message),
    )


def whats_of(case: Case) -> tuple[str, ...]:
    """Return the checks a case has: without layers where no sample compares them."""
    layers = any(sample.layers for sample in case.samples)
    return (LAYERS, OUTPUTS) if layers else (OUTPUTS,)


def path_of(suite: Suite) -> str:
    """Return a suite's path as records hold it: in full, whatever was given."""
    return str(suite.path.resolve())


def open_store(root: str) -> Store:
    """Open the store at `root`, or the user's own for an empty one."""
    return Store(root=Path(root).expanduser() if root else default_root())


def header(suite: Suite, cases: Collection[Case], store: Store) -> str:
    """Return the line that says what is going to run."""
    sides = {
        "component": {case.component.name for case in cases},
        "backend": {case.backend for case in cases},
        "variant": {case.variant.name for case in cases},
    }
    size = sum(entry.size_bytes for entry in store.entries()) / 2**20
    matrix = " × ".join(count(len(names), noun) for noun, names in sides.items())
    megabytes = f"{size:,.0f}" if round(size) else f"{size:.1f}"
    return (
        f"parity: {near(suite.path)} · {matrix}, {count(len(cases), 'case')} · "
        f"store {megabytes} MB"
    )


def asked_of(suite: Suite, cases: Collection[Case] | None = None) -> set[Asked]:
    """Return every check of a suite, or of some of its cases."""
    return {
        (path_of(suite), case.id, what)
        for case in (suite.cases if cases is None else cases)
        for what in whats_of(case)
    }


def near(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
