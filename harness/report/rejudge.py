"""Judge a finished run again, under other tolerances or today's; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.errors import ParityError
from harness.core.settings import NextSteps, Settings
from harness.core.text import Line, few, wrapped
from harness.engine.finished_run import Report, differing
from harness.engine.run import files_of
from harness.report.explained import explanations_in
from harness.report.finish import (
    Judged,
    baseline_of,
    checks_of,
    judge_run,
    with_added,
    write_reports,
)
from harness.report.run_facts import RunFacts
from harness.report.suites import judges_of, suites_for
from harness.suite.suite import Suite

_NEXT = NextSteps()
_SOME = Path("SUITE")
"""What stands in a command for a suite that the user must name."""


def rejudge(report: Report, settings: Settings, given: Sequence[Suite] = ()) -> Judged:
    """Judge a finished run under the tolerances of today.

    `harness.report.suites.suites_for` says which suites are loaded, with those
    that the user has `given`. Another suite is never loaded: the tolerances that the
    run keeps of it judge its cases, and a note says so.

    Raises:
        ParityError: A suite is wrong or none of the run's, or the run keeps no
            tolerances of a suite that is not loaded.

    """
    suites = suites_for(report, given)
    every = {path: _every(report, path, suites.get(path)) for path in report.suites}
    judged = judge_run(
        judges_of(report, suites, settings),
        every,
        report.records,
        report.ends,
        report.required,
    )
    notes = [line for path in suites for line in _changed(report, path, suites[path])]
    elsewhere = [path for path in report.suites if path not in suites]
    if elsewhere:
        notes += wrapped(_kept_words(report), indent=" ", tone="quiet")
    return replace(judged, notes=tuple(notes), elsewhere=bool(elsewhere))


def reports_again(
    report: Report, settings: Settings, again: Judged, given: Sequence[Suite] = ()
) -> list[Path]:
    """Write the reports of a finished run that was judged `again`; return their paths.

    The arguments are those of `facts_again`. Where no plug-in writes reports, there are
    no paths.

    Raises:
        ParityError: The baseline is gone or wrong, or a report cannot be written.

    """
    paths, missing = write_reports(facts_again(report, settings, again, given))
    if missing:
        raise ParityError(missing[0])
    return paths


def facts_again(
    report: Report, settings: Settings, again: Judged, given: Sequence[Suite] = ()
) -> RunFacts:
    """Return the facts of a finished run that was judged `again`, for its reports.

    The settings may name another baseline. `given` are the suites that the user names.

    Raises:
        ParityError: The baseline is gone or wrong.

    """
    if settings.baseline:
        baseline_of(settings.baseline, report.path.parent.parent)
    baseline = settings.baseline or str(report.about.get("baseline") or "")
    judged_by = {"tier": settings.tier, "changes": list(settings.changes)}
    facts = facts_of(report, again, next_steps(report, settings, again, given))
    about = {**report.about, **judged_by, "baseline": baseline}
    return with_added(replace(facts, about=about), again, report.path)


def next_steps(
    report: Report, settings: Settings, again: Judged, given: Sequence[Suite]
) -> NextSteps:
    """Return the options that go on with a finished run.

    Where a suite is elsewhere, no command repeats its path: the user says which it is.
    """
    paths = [suite.path for suite in given]
    return settings.next_steps(
        report.id, *(paths or ([_SOME] if again.elsewhere else []))
    )


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


def _every(
    report: Report, path: str, suite: Suite | None
) -> frozenset[tuple[str, str]] | None:
    """Return every check of a suite of a run; None if the run is only a part of it."""
    if suite is not None:
        return checks_of(suite)
    if not report.about["whole"]:
        return None
    return frozenset((case, what) for of, case, what in report.ends if of == path)


def _kept_words(report: Report) -> str:
    return (
        f"judged by the tolerances that the run keeps, because its suite is not the "
        f"one in this folder; `parity show {report.id} --suite {_SOME}` judges it by "
        "a suite"
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
