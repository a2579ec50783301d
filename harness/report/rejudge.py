"""A finished run judged again, under other tolerances or today's; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import ParityError, SuiteError
from harness.core.settings import Settings
from harness.core.text import Line, few, wrapped
from harness.engine.run import asked_of
from harness.engine.run_folder import PAGE, Report
from harness.judge.case import CaseVerdict
from harness.judge.run import beside_baseline, complaints, exit_code
from harness.report.finish import files_of, since_of
from harness.report.html.found import Found
from harness.report.html.write import write_page
from harness.report.runs.held import held_against
from harness.suite.judge import Judge
from harness.suite.suite import Suite, load_suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """A finished run and today's verdicts.

    Attributes:
        verdicts: Of every check that the run was asked for.
        stale: Complaints about the files that describe the run.
        whole: Whether the run was of all that its suites are today.
        judges: Suite, by the path it had then, to who judged it.
        notes: What has changed since the run.
        code: 0 parity, 1 none, 2 could not tell.

    """

    verdicts: tuple[CaseVerdict, ...]
    stale: tuple[str, ...]
    whole: bool
    judges: Mapping[str, Judge]
    notes: tuple[Line, ...]
    code: int


def rejudge(
    report: Report, settings: Settings, moved_to: Suite | None = None
) -> Rejudged:
    """Judge a finished run under the tolerances of today.

    Args:
        report: The run.
        settings: Other tolerances, if any.
        moved_to: Where its suite is now; where it was then, if left out.

    Raises:
        ParityError: A suite of the run is gone, or wrong.

    """
    suites = {path: moved_to or _suite_of(report, path) for path in report.suites}
    judges = {path: Judge.of(suite, settings) for path, suite in suites.items()}
    verdicts = tuple(
        judges[suite].check(report.records[suite, case], what)
        for suite, case, what in report.asked
    )
    whole = {
        path: suite
        for path, suite in suites.items()
        if _checks(suite) <= {(c, what) for of, c, what in report.asked if of == path}
    }
    stale = tuple(
        complaint
        for path, suite in whole.items()
        for complaint in complaints(
            _checks(suite),
            judges[path].policy,
            judges[path].gaps,
            [one for (of, _), one in report.records.items() if of == path],
        )
    )
    return Rejudged(
        verdicts=verdicts,
        stale=stale,
        whole=len(whole) == len(suites),
        judges=judges,
        notes=tuple(
            line for path in suites for line in _changed(report, path, suites[path])
        ),
        code=exit_code(verdicts, stale, report.required),
    )


def page_again(
    report: Report,
    settings: Settings,
    moved_to: Suite | None = None,
    out: Path | None = None,
    again: Rejudged | None = None,
) -> Path:
    """Judge a finished run again and write its page.

    Args:
        report: The run.
        settings: Other tolerances, if any; the baseline to hold the run against, if
            another than it was held against when it ended.
        moved_to: Where its suite is now; where it was then, if left out.
        out: Where to write; beside the run's report, if left out.
        again: The run as judged already; judged here, if left out.

    Returns:
        The page's path.

    Raises:
        ParityError: A suite of the run or its baseline is gone or wrong, or the page
            cannot be written.

    """
    again = again or rejudge(report, settings, moved_to)
    held = None
    if baseline := settings.baseline or str(report.about.get("baseline") or ""):
        held = held_against(baseline, report.path, again.judges, whole=again.whole)
    path = out or report.path.with_name(PAGE)
    found = Found(
        run=report.id,
        records=list(report.records.values()),
        verdicts=again.verdicts,
        exit_code=beside_baseline(
            again.code, worse=held is not None and bool(held.blocking)
        ),
        about={
            **report.about,
            "tier": settings.tier or report.about.get("tier"),
            "changes": [*(report.about.get("changes") or ()), *settings.changes],
        },
        folder=report.path.parent,
        stale=again.stale,
        required=report.required,
        since=None if held is None else since_of(held),
    )
    try:
        return write_page(found, path)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}); give another with --out."
        raise ParityError(msg) from error


def _checks(suite: Suite) -> set[tuple[str, str]]:
    """Return every check of a suite, wherever the suite lies."""
    return {(case, what) for _, case, what in asked_of(suite)}


def _suite_of(report: Report, path: str) -> Suite:
    try:
        return load_suite(Path(path))
    except ParityError as error:
        gone = "is no longer there" if not Path(path).exists() else "cannot be read"
        detail = "" if not Path(path).exists() else f" {error}"
        msg = (
            f"Run {report.id} is of the suite {path}, which {gone}; name the one to "
            f"judge by with --suite.{detail}"
        )
        raise SuiteError(msg) from error


def _changed(report: Report, path: str, suite: Suite) -> Iterator[Line]:
    """Say what is no longer as it was in the run."""
    files, now = report.suites[path], files_of(suite)
    names = [name for name in {**files, **now} if files.get(name) != now.get(name)]
    if names:
        have = "has" if len(names) == 1 else "have"
        text = f"{', '.join(names)} {have} changed since the run"
        yield from wrapped(text, indent=" ", tone="quiet")
    ids = {case.id for case in suite.tested}
    gone = [case for of, case in report.records if of == path and case not in ids]
    if gone:
        text = f"the suite no longer has {few(gone)}, judged here as then recorded"
        yield from wrapped(text, indent=" ", tone="quiet")
