"""A run from end to end: suite, engine, records, verdicts, report.

The pytest plugin and the command line both stand on this; neither decides anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.backends import DISTRIBUTIONS
from harness.environment import environment
from harness.gaps import Gap, load_gaps, unmatched
from harness.pipeline import Engine, Progress
from harness.policy import Policy, parse_changes
from harness.report.judged import CaseVerdict, judge_case
from harness.report.lines import Line, summary
from harness.report.markdown import markdown
from harness.report.record import LAYERS, OUTPUTS, CaseRecord
from harness.report.run_folder import REPORT, SUMMARY, RunFolder
from harness.spec import Case
from harness.store import Store, default_root
from harness.suite import Suite

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Environment variable naming the file that a CI shows beside the job."""


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
        folder: RunFolder,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.suite = suite
        self.settings = settings
        self.folder = folder
        self.judge = Judge.of(suite, settings)
        self.store = Store(root=Path(settings.store) if settings.store else default_root())
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
        """End child processes; what is running is given up."""
        self._engine.close()

    def make(self, cases: Iterable[Case]) -> None:
        """Make all that the cases need and the store lacks."""
        self._engine.make(cases)

    def start(self, cases: Iterable[Case]) -> None:
        """Begin cases in the background, in order, as there is room."""
        for case in cases:
            if case.id not in self._started:
                self._started[case.id] = self._engine.submit(case)

    def record(self, case: Case) -> CaseRecord:
        """Return a case's record, running it if no process of this run has."""

        def make() -> CaseRecord:
            started = self._started.get(case.id)
            return started.result() if started else self._engine.run(case)

        return self.folder.record_once(case.id, make)

    def check(self, case: Case, what: str) -> CaseVerdict:
        """Run one check of a case and judge it."""
        return self.judge.check(self.record(case), what)

    def verdicts(self, case: Case) -> list[CaseVerdict]:
        """Run a case and judge every check that its record answers."""
        record = self.record(case)
        return [self.judge.check(record, what) for what in checks_of(record)]

    def missing(self, case: Case) -> str:
        """Return why a case's runtime cannot be had here, or nothing."""
        from importlib.util import find_spec

        module = {"onnxruntime": "onnxruntime", "mnn": "MNN"}[case.backend]
        if find_spec(module) is not None:
            return ""
        packages = " or ".join(DISTRIBUTIONS[case.backend])
        return f"{case.backend} is not installed (pip install {packages})"


def checks_of(record: CaseRecord) -> tuple[str, ...]:
    """Return which checks a record can answer."""
    seen = {row.what for row in record.rows}
    if record.failure is not None or not seen:
        return (LAYERS, OUTPUTS)
    return tuple(what for what in (LAYERS, OUTPUTS) if what in seen)


def conclude(
    folder: RunFolder,
    suites: Sequence[Suite],
    settings: Settings,
    *,
    whole: bool,
    argv: Sequence[str],
) -> tuple[list[Line], int]:
    """Judge what a run recorded and write its reports.

    Args:
        folder: The run's records.
        suites: The suites that ran.
        settings: As the run had them.
        whole: Whether every check of them was asked for, so that a gap or a pattern
            that matched nothing is stale.
        argv: The command that ran, to repeat it.

    Returns:
        The summary, and the exit code: 0 parity, 1 none, 2 could not tell.

    """
    judges = {suite.name: Judge.of(suite, settings) for suite in suites}
    owner = {case.id: suite.name for suite in suites for case in suite.cases}
    records = {record.case: record for record in folder.records()}
    verdicts = [
        judges[owner[case]].check(record, what)
        for case, record in records.items()
        for what in checks_of(record)
    ]
    stale = list(_stale(judges, verdicts, records)) if whole else []
    report = near(folder.path / REPORT)
    lines = list(
        summary(records, verdicts, stale=stale, report=report, show=folder.id)
    )
    code = exit_code(verdicts, stale)
    text = markdown(records, verdicts, lines, folder.id)
    (folder.path / SUMMARY).write_text(text, encoding="utf-8")
    if step := os.environ.get(STEP_SUMMARY):
        with Path(step).open("a", encoding="utf-8") as file:
            file.write(text)
    about = {
        "suites": [str(suite.path) for suite in suites],
        "environment": environment().to_json(),
        "command": list(argv),
        "exit_code": code,
    }
    folder.finish(about, [_brief(verdict) for verdict in verdicts])
    return lines, code


def _stale(
    judges: dict[str, Judge],
    verdicts: Sequence[CaseVerdict],
    records: dict[str, CaseRecord],
) -> Iterable[str]:
    ids = [verdict.id for verdict in verdicts]
    for judge in judges.values():
        for gap in unmatched(judge.gaps, ids):
            yield f"{gap.source}: the gap {gap.case!r} matches no check; remove it."
        for record in records.values():
            if record.failure is None:
                names = {row.probe for row in record.rows}
                names |= {row.module for row in record.rows}
                case = (record.component, record.backend, record.variant)
                yield from judge.policy.unmatched_patterns(case, names)


def exit_code(verdicts: Sequence[CaseVerdict], stale: Sequence[str] = ()) -> int:
    """Return 0 for parity, 1 for no parity, 2 when it could not be told."""
    bad = [verdict for verdict in verdicts if not verdict.outcome.passed]
    if any(verdict.outcome.measured for verdict in bad):
        return 1
    # A run that compared nothing, or whose own files are wrong, tells nothing.
    return 2 if bad or stale or not verdicts else 0


def _brief(verdict: CaseVerdict) -> dict[str, object]:
    first = verdict.first
    return {
        "id": verdict.id,
        "outcome": verdict.outcome.value,
        "found": verdict.found.value,
        "reason": verdict.reason,
        "first_divergence": first.row.probe if first else None,
        "sample": first.row.sample if first else None,
    }


def near(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
