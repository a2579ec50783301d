"""The end of a run: everything judged, stale words found, reports written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from harness.core.environment import environment
from harness.core.errors import ParityError
from harness.core.settings import Settings, near
from harness.core.text import Line, wrapped
from harness.engine.run import Asked, asked_of, path_of
from harness.engine.run_folder import PAGE, SUMMARY, RunFolder
from harness.judge.case import CaseVerdict
from harness.judge.run import beside_baseline, complaints, exit_code
from harness.report.html.found import Found
from harness.report.html.since import Changed, Since
from harness.report.html.write import write_page
from harness.report.markdown import markdown
from harness.report.run_diff import (
    LOUDEST_FIRST,
    diff_lines,
    elsewhere,
    notes,
    totals,
)
from harness.report.runs.diff import Diff
from harness.report.runs.held import held_against
from harness.report.summary import summary
from harness.suite.extra_inputs import FILE as WORST_INPUTS
from harness.suite.judge import Judge
from harness.suite.suite import Suite

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
    everything = len(whole) == len(suites)
    stale = [
        complaint
        for suite in whole
        for complaint in complaints(
            {(case, what) for _, case, what in asked_of(suite)},
            judges[path_of(suite)].policy,
            judges[path_of(suite)].gaps,
            [one for one in records.values() if one.suite == path_of(suite)],
        )
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
        "baseline": settings.baseline,
        "whole": everything,
        "exit_code": code,
    }
    cases = list(records.values())
    told = [_brief(verdict) for verdict in verdicts]
    try:
        written = folder.finish(about, told, cases)
        held = None
        if settings.baseline:
            held = held_against(settings.baseline, written, judges, whole=everything)
            with_baseline = beside_baseline(code, worse=bool(held.blocking))
            if with_baseline != code:
                code = with_baseline
                folder.finish(about | {"exit_code": code}, told, cases)
        found = Found(
            run=folder.id,
            records=cases,
            verdicts=verdicts,
            exit_code=code,
            about=about,
            folder=folder.path,
            stale=stale,
            required=settings.require,
            since=None if held is None else since_of(held),
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
        (folder.path / SUMMARY).write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{folder.path} cannot be written to ({error.strerror}): no report."
        raise ParityError(msg) from error
    return [*lines, *tell_ci(text)], code


def since_of(held: Diff) -> Since:
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


def tell_ci(text: str) -> Iterator[Line]:
    """Put a page beside the job where a CI runs this, or say why it is not there."""
    if step := os.environ.get(STEP_SUMMARY):
        try:
            with Path(step).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            said = f"{STEP_SUMMARY}, {step}, cannot be written to ({error.strerror})."
            yield from wrapped(said, indent=" ", tone="quiet")


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
