"""Judge a finished run again, under other tolerances or today's; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.core.errors import SuiteError
from harness.core.settings import NextSteps, Settings
from harness.core.text import Line, few, wrapped
from harness.core.whole_file import writing
from harness.engine.run import files_of
from harness.engine.run_folder import PAGE, Report
from harness.report.explained import explanations_in
from harness.report.finish import Judged, beside, judge_run
from harness.report.html.page import write_page
from harness.report.run_facts import RunFacts
from harness.report.runs.diff import differing
from harness.report.runs.selection import suite_of
from harness.suite.suite import Suite

_NEXT = NextSteps()


def rejudge(
    report: Report, settings: Settings, moved_to: Suite | None = None
) -> Judged:
    """Judge a finished run under the tolerances of today.

    If the suite has moved, `moved_to` is read in place of its path in the run.

    Raises:
        ParityError: A suite of the run is gone, or wrong, or one is given for a run of
            several.

    """
    if moved_to is not None and len(report.suites) > 1:
        msg = f"run {report.id} is of {len(report.suites)} suites; leave out --suite."
        raise SuiteError(msg)
    suites = {path: moved_to or suite_of(report, path) for path in report.suites}
    judged = judge_run(suites, settings, report.records, report.ends, report.required)
    notes = (line for path in suites for line in _changed(report, path, suites[path]))
    return replace(judged, notes=tuple(notes))


def page_again(
    report: Report,
    settings: Settings,
    moved_to: Suite | None = None,
    out: Path | None = None,
    again: Judged | None = None,
) -> Path:
    """Judge a finished run again, write its page, and return the page's path.

    The settings may name other tolerances and another baseline. The run's suite may
    have `moved_to` another path. Without `out`, the page is beside the run's report.
    `again` has the verdicts, if the run was already judged again.

    Raises:
        ParityError: A suite of the run or its baseline is gone or wrong, or the page
            cannot be written.

    """
    again = again or rejudge(report, settings, moved_to)
    baseline = settings.baseline or str(report.about.get("baseline") or "")
    since, code = beside(baseline, report.path, again)
    path = out or report.path.with_name(PAGE)
    judged_by = {"tier": settings.tier, "changes": list(settings.changes)}
    steps = settings.next_steps(report.id, moved_to.path if moved_to else None)
    found = replace(
        facts_of(report, again, steps),
        exit_code=code,
        about={**report.about, **judged_by},
        since=since,
    )
    with writing(path, "give another with --out" if out else "the run is as it was"):
        return write_page(found, path)


def facts_of(report: Report, again: Judged, next_steps: NextSteps = _NEXT) -> RunFacts:
    """Return a run with its new verdicts, for the reports."""
    return RunFacts(
        run=report.id,
        records=list(report.records.values()),
        verdicts=again.verdicts,
        exit_code=again.code,
        about=report.about,
        folder=report.path.parent,
        stale=again.stale,
        required=report.required,
        explained=explanations_in(report.path.parent),
        next_steps=next_steps,
    )


def _changed(report: Report, path: str, suite: Suite) -> Iterator[Line]:
    """Yield what has changed since the run."""
    if names := differing(report.suites[path], files_of(suite)):
        have = "has" if len(names) == 1 else "have"
        text = f"{', '.join(names)} {have} changed since the run"
        yield from wrapped(text, indent=" ", tone="quiet")
    ids = {case.id for case in suite.tested}
    gone = [case for of, case in report.records if of == path and case not in ids]
    if gone:
        text = f"the suite no longer has {few(gone)}, judged here as then recorded"
        yield from wrapped(text, indent=" ", tone="quiet")
