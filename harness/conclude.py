"""The end of a run: everything judged, stale words found, reports written.

A finished run is judged again here too, under other tolerances or today's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.environment import environment
from harness.errors import ParityError, SuiteError
from harness.gaps import unmatched
from harness.release.diff import Diff
from harness.release.held import held_against
from harness.release.screen import (
    LOUDEST_FIRST,
    diff_lines,
    elsewhere,
    notes,
    totals,
)
from harness.report.html.found import Found
from harness.report.html.since import Changed, Since
from harness.report.html.write import write_page
from harness.report.judged import CaseVerdict, skipped
from harness.report.markdown import markdown
from harness.report.record import CaseRecord, Key
from harness.report.run_folder import PAGE, SUMMARY, Report, RunFolder
from harness.report.summary import summary
from harness.report.text import Line, few, wrapped
from harness.runner import Asked, Judge, Settings, asked_of, near, path_of
from harness.suite import Suite, load_suite
from harness.worst_inputs import FILE as WORST_INPUTS

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Environment variable naming the file that a CI shows beside the job."""


def conclude(
    folder: RunFolder,
    suites: Sequence[Suite],
    settings: Settings,
    *,
    asked: Collection[Asked],
    argv: Sequence[str],
) -> tuple[list[Line], int]:
    """Judge what a run recorded and write its reports.

    Args:
        folder: The run's records.
        suites: The suites that ran.
        settings: As the run had them.
        asked: The checks that were asked for and reached.
        argv: The command that ran, to repeat it.

    Returns:
        The summary, and the exit code: 0 parity, 1 none or worse than the baseline,
        2 could not tell.

    Raises:
        ParityError: A file that describes the run is wrong, or a report cannot be
            written.

    """
    judges = {path_of(suite): Judge.of(suite, settings) for suite in suites}
    records = folder.records()
    verdicts = [
        judges[suite].check(records[suite, case], what)
        for suite, case, what in sorted(asked)
        if (suite, case) in records and suite in judges
    ]
    seen = {(*verdict.key, verdict.what) for verdict in verdicts}
    whole = [suite for suite in suites if asked_of(suite) <= seen]
    stale = [
        complaint
        for suite in whole
        for complaint in _stale(suite, judges[path_of(suite)], records)
    ]
    code = exit_code(verdicts, stale, settings.require)
    about = {
        "suites": [
            {"path": path_of(suite), "files": files_of(suite)} for suite in suites
        ],
        "environment": environment().to_json(),
        "command": list(argv),
        "required": list(settings.require),
        "tier": settings.tier,
        "changes": list(settings.changes),
        "exit_code": code,
    }
    cases = list(records.values())
    try:
        written = folder.finish(about, map(_brief, verdicts), cases)
        held = None
        if settings.baseline:
            everything = len(whole) == len(suites)
            held = held_against(settings.baseline, written, judges, whole=everything)
            # What is worse within its tolerance is no lack of parity, and yet is 1.
            code = 1 if held.blocking and code == 0 else code
        found = Found(
            run=folder.id,
            records=cases,
            verdicts=verdicts,
            exit_code=code,
            about=about,
            folder=folder.path,
            stale=stale,
            required=settings.require,
            since=None if held is None else _since(held),
        )
        page = folder.path / PAGE
        complaint = list(_page(found, page))
        lines = list(
            summary(
                cases,
                verdicts,
                stale=stale,
                required=settings.require,
                report=near(written if complaint else page),
                next_steps=settings.next_steps(folder.id),
            )
        )
        lines += complaint
        if held is not None:
            lines += diff_lines(held)
        text = markdown(cases, verdicts, lines, folder.id)
        tell_ci(folder.path / SUMMARY, text)
    except OSError as error:
        msg = f"{folder.path} cannot be written to ({error.strerror}): no report."
        raise ParityError(msg) from error
    return lines, code


def _since(held: Diff) -> Since:
    """Return what changed since the baseline, as the page shows it."""
    return Since(
        before=held.before,
        blocks=bool(held.blocking),
        changes=[
            Changed(how=change.value, name=one.name, words=one.words)
            for change in LOUDEST_FIRST
            for one in held.of(change)
            if not elsewhere(one)
        ],
        totals=[line.text.strip() for line in (*totals(held), *notes(held))],
    )


def _page(found: Found, path: Path) -> Iterator[Line]:
    """Write the page, and say so in a sentence where that fails.

    What a run found stands without its page, so nothing here may end the run.
    """
    try:
        write_page(found, path)
    except Exception as error:  # noqa: BLE001  # a page that fails must not fail a run
        why = f"{type(error).__name__}: {error}"
        text = f"{path.name} could not be written ({why}); report.json has it all."
        yield from wrapped(text, indent=" ", tone="bad")


def page_again(
    report: Report,
    settings: Settings,
    moved_to: Suite | None = None,
    out: Path | None = None,
) -> Path:
    """Judge a finished run again and write its page.

    Args:
        report: The run.
        settings: Other tolerances, if any; a baseline to hold it against, if any.
        moved_to: Where its suite is now; where it was then, if left out.
        out: Where to write; beside the run's report, if left out.

    Returns:
        The page's path.

    Raises:
        ParityError: A suite of the run is gone or wrong, there is no such baseline, or
            the page cannot be written.

    """
    suites = _suites_of(report, moved_to)
    judges = {path: Judge.of(suite, settings) for path, suite in suites.items()}
    verdicts = _verdicts(report, judges)
    since = None
    if settings.baseline:
        asked = {(case, what) for _, case, what in report.asked}
        whole = all(
            (case, what) in asked
            for suite in suites.values()
            for _, case, what in asked_of(suite)
        )
        since = _since(
            held_against(settings.baseline, report.path, judges, whole=whole)
        )
    path = out or report.path.with_name(PAGE)
    found = Found(
        run=report.id,
        records=list(report.records.values()),
        verdicts=verdicts,
        exit_code=exit_code(verdicts, required=report.required),
        about={
            **report.about,
            "tier": settings.tier or report.about.get("tier"),
            "changes": [*(report.about.get("changes") or ()), *settings.changes],
        },
        folder=report.path.parent,
        required=report.required,
        since=since,
    )
    try:
        return write_page(found, path)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}); give another with --out."
        raise ParityError(msg) from error


def tell_ci(path: Path, text: str) -> None:
    """Write a page, and put it beside the job where a CI runs this."""
    path.write_text(text, encoding="utf-8")
    if step := os.environ.get(STEP_SUMMARY):
        with Path(step).open("a", encoding="utf-8") as file:
            file.write(text)


def _stale(suite: Suite, judge: Judge, records: dict[Key, CaseRecord]) -> Iterable[str]:
    """Complain about what a run of the whole suite found no use for."""
    path = path_of(suite)
    own = [record for record in records.values() if record.suite == path]
    ids = [f"{case}/{what}" for _, case, what in asked_of(suite)]
    for gap in unmatched(judge.gaps, ids):
        yield f"{gap.source}: the gap {gap.case!r} matches no check; remove it."
    for record in own:
        if record.failure is None:
            names = {row.probe for row in record.rows}
            names |= {row.module for row in record.rows}
            case = (record.component, record.backend, record.variant)
            yield from judge.policy.unmatched_patterns(case, names)


def exit_code(
    verdicts: Iterable[CaseVerdict],
    stale: Sequence[str] = (),
    required: Collection[str] = (),
) -> int:
    """Return 0 for parity, 1 for no parity, 2 when it could not be told."""
    told = [verdict for verdict in verdicts if not skipped(verdict, required)]
    bad = [verdict for verdict in told if not verdict.outcome.passed]
    if any(verdict.outcome.measured for verdict in bad):
        return 1
    # A run that compared nothing, or whose own files are wrong, tells nothing.
    return 2 if bad or stale or not told else 0


def judged_again(
    report: Report, settings: Settings, moved_to: Suite | None = None
) -> tuple[list[CaseVerdict], list[Line]]:
    """Judge a finished run under the tolerances of today.

    Args:
        report: The run.
        settings: Other tolerances, if any.
        moved_to: Where its suite is now; where it was then, if left out.

    Returns:
        The verdicts, and what has changed since the run.

    Raises:
        ParityError: A suite of the run is gone, or wrong.

    """
    suites = _suites_of(report, moved_to)
    judges = {path: Judge.of(suite, settings) for path, suite in suites.items()}
    notes = [
        line
        for path, files in report.suites.items()
        for line in _changed(report, path, files, suites[path])
    ]
    return _verdicts(report, judges), notes


def _verdicts(report: Report, judges: Mapping[str, Judge]) -> list[CaseVerdict]:
    return [
        judges[suite].check(report.records[suite, case], what)
        for suite, case, what in report.asked
    ]


def _suites_of(report: Report, moved_to: Suite | None) -> dict[str, Suite]:
    """Return a run's suites as they are today, by the path that they had then."""
    return {path: moved_to or _suite_of(report, path) for path in report.suites}


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


def _changed(
    report: Report, path: str, files: Mapping[str, str], suite: Suite
) -> Iterator[Line]:
    """Say what is no longer as it was in the run."""
    now = files_of(suite)
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


def files_of(suite: Suite) -> dict[str, str]:
    """Return digests of the files that describe a suite, by name."""
    worst = suite.path.parent / WORST_INPUTS
    paths = (suite.path, suite.tolerances_path, suite.gaps_path, worst)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file()
    }


def _brief(verdict: CaseVerdict) -> dict[str, object]:
    first = verdict.first
    return {
        "suite": verdict.suite,
        "id": verdict.id,
        "outcome": verdict.outcome.value,
        "found": verdict.found.value,
        "reason": verdict.reason,
        "first_divergence": first.row.probe if first else None,
        "sample": first.row.sample if first else None,
    }
