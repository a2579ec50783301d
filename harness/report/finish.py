"""Finish a run: judge its records and write its reports."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.environment import environment
from harness.core.errors import ParityError, SpecError, SuiteError
from harness.core.outcome import CANNOT_TELL, PARITY, Outcome
from harness.core.plugins import added, first_answer
from harness.core.private import public, with_tilde
from harness.core.record import CaseRecord, Key
from harness.core.settings import Settings, near
from harness.core.text import MESSAGE, Line, count, few, shortened, wrapped
from harness.core.toml_file import read_text
from harness.core.whole_file import writing
from harness.engine.run import Asked, asked_of, files_of, path_of
from harness.engine.run_folder import SUMMARY, RunFolder
from harness.judge.case import CaseVerdict
from harness.judge.run import complaints, exit_code
from harness.report.run_facts import RunFacts
from harness.report.summary import markdown, summary
from harness.suite.judge import Judge
from harness.suite.suite import Suite

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Environment variable with the path of the file that a CI shows beside the job."""


def conclude(
    folder: RunFolder,
    suites: Sequence[Suite],
    settings: Settings,
    *,
    asked: Collection[Asked],
    argv: Sequence[str],
    about: Mapping[str, Any],
) -> tuple[list[Line], int]:
    """Judge what a run recorded and write its reports; return summary and exit code.

    `asked` are the checks that were requested and reached. The command `argv` repeats
    the run, and `about` has further facts for its report. The exit code is 0 for
    parity, 1 for no parity or worse than the baseline, and 2 for could not tell.

    Raises:
        ParityError: A file that describes the run is wrong, or a report cannot be
            written.

    """
    by_path = {path_of(suite): suite for suite in suites}
    records = folder.records()
    lost = sorted({case for suite, case, _ in asked if (suite, case) not in records})
    checks = [
        (suite, case, what)
        for suite, case, what in sorted(asked)
        if (suite, case) in records and suite in by_path
    ]
    about = {
        "suites": [
            {
                "path": path_of(suite),
                "files": files_of(suite),
                "checkpoint": suite.source.name,
                **_kept_of(suite),
            }
            for suite in suites
        ],
        "environment": environment().to_json(),
        "command": [public(word) for word in argv],
        "required": list(settings.require),
        "tier": settings.tier,
        "changes": list(settings.changes),
        "baseline": _told(settings.baseline),
        **about,
    }
    cases = list(records.values())
    try:
        judges = {path: Judge.of(suite, settings) for path, suite in by_path.items()}
        every = {path: checks_of(suite) for path, suite in by_path.items()}
        judged = judge_run(judges, every, records, checks, settings.require)
    except ParityError as error:
        show = f"`parity show {folder.id}{settings.next_steps(folder.id).runs}`"
        msg = (
            f"{error} The measurements are kept: {show} judges them once that is right."
        )
        try:
            _keep_unjudged(folder, about, checks, cases, error)
        except OSError as full:
            msg = f"{error} {folder.path} cannot be written either ({full.strerror})."
        raise ParityError(msg) from error
    if lost and judged.code == PARITY:
        judged = replace(judged, code=CANNOT_TELL)
    about = {"whole": judged.whole, "exit_code": judged.code, **about}
    brief = [_brief(verdict) for verdict in judged.verdicts]
    with writing(folder.path, "there is no report"):
        # The records must be safe before anything else, such as a baseline, is read.
        written = folder.finish(about, brief, cases)
        facts = RunFacts(
            run=folder.id,
            records=cases,
            verdicts=judged.verdicts,
            exit_code=judged.code,
            about=about,
            folder=folder.path,
            stale=judged.stale,
            required=settings.require,
            next_steps=settings.next_steps(folder.id),
        )
        facts = with_added(facts, judged, written)
        code = facts.exit_code
        if code != judged.code:
            folder.finish(about | {"exit_code": code}, brief, cases)
        reports, missing = write_reports(facts)
        shown = ", ".join(map(near, reports or [written]))
        lines = [*summary(facts, report=shown), *_lost_words(lost)]
        for text in missing:
            lines += wrapped(text, indent=" ", tone="bad")
        if facts.since is not None:
            lines += facts.since.lines
        text = markdown(facts, lines)
        # A path in it may have bytes that are no UTF-8.
        (folder.path / SUMMARY).write_text(text, encoding="utf-8", errors="replace")
    return [*lines, *tell_ci(text)], code


def _lost_words(lost: Sequence[str]) -> Iterator[Line]:
    """Yield a sentence about cases that were asked for and have no record."""
    if lost:
        have = f"{count(len(lost), 'case')} left no record: {few(lost)}"
        text = f"✗ {have}; nobody can tell whether they agree, so run again."
        yield from wrapped(text, indent=" ", tone="bad")


def _kept_of(suite: Suite) -> dict[str, Any]:
    """Return what judges a run where its suite is not: two texts, and a share.

    A text that cannot be read is left out; to judge the run says why.
    """
    kept: dict[str, Any] = {"coverage": suite.limits.coverage, "known_gaps": ""}
    with suppress(SuiteError):
        kept["tolerances"] = public(read_text(suite.tolerances_path))
        if suite.gaps_path.is_file():
            kept["known_gaps"] = public(read_text(suite.gaps_path))
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts of a run.

    Attributes:
        stale: Complaints about the files that describe the run.
        whole: Whether the run had all cases and checks of its suites.
        judges: Each suite's path in the run to its judge.
        code: Exit code: 0 parity, 1 no parity, 2 could not tell.
        notes: Changes since the run, where a finished run is judged again; or that its
            own tolerances judge it.
        elsewhere: Whether a suite of the run was not loaded.

    """

    verdicts: tuple[CaseVerdict, ...]
    stale: tuple[str, ...]
    whole: bool
    judges: Mapping[str, Judge]
    code: int
    notes: tuple[Line, ...] = ()
    elsewhere: bool = False


def checks_of(suite: Suite) -> frozenset[tuple[str, str]]:
    """Return case and check of everything in a suite."""
    return frozenset((case, what) for _, case, what in asked_of(suite))


def judge_run(
    judges: Mapping[str, Judge],
    every: Mapping[str, Collection[tuple[str, str]] | None],
    records: Mapping[Key, CaseRecord],
    asked: Iterable[Asked],
    required: Collection[str],
) -> Judged:
    """Judge the records of a run, and find entries of its files that apply to nothing.

    Args:
        judges: Each suite's path in the run to its judge.
        every: Each suite's path in the run to case and check of everything in it; None
            if the run is only a part of a suite that is not there.
        records: The run's records.
        asked: Suite, case and check of each requested verdict.
        required: Runtimes that may not be skipped.

    Raises:
        ParityError: A file beside a suite is wrong.

    """
    asked = tuple(asked)
    verdicts = tuple(
        judges[suite].check(records[suite, case], what) for suite, case, what in asked
    )
    stale: list[str] = []
    whole = True
    for path, checks in every.items():
        there = {(case, what) for of, case, what in asked if of == path}
        if checks is None or not there.issuperset(checks):
            whole = False
            continue
        own = [record for (of, _), record in records.items() if of == path]
        stale += complaints(checks, judges[path].policy, judges[path].gaps, own)
    return Judged(
        verdicts=verdicts,
        stale=tuple(stale),
        whole=whole,
        judges=judges,
        code=exit_code(verdicts, stale, required),
    )


def _keep_unjudged(
    folder: RunFolder,
    about: Mapping[str, Any],
    checks: Iterable[Asked],
    cases: Iterable[CaseRecord],
    error: ParityError,
) -> None:
    """Write the report of a run of which a file was spoilt while it ran."""
    verdicts = [
        CaseVerdict(
            suite=suite,
            case=case,
            what=what,
            outcome=Outcome.OPEN,
            found=Outcome.OPEN,
            reason=f"not judged: {error}",
            worst=None,
            first=None,
            inputs=(),
            rows=(),
        )
        for suite, case, what in checks
    ]
    about = {"whole": False, "exit_code": CANNOT_TELL, **about}
    folder.finish(about, [_brief(verdict) for verdict in verdicts], list(cases))


def baseline_of(name: str, runs: Path) -> Path:
    """Return the path of the baseline that a folder of runs has by this name.

    Raises:
        ParityError: There is no such baseline, or no plug-in compares runs.

    """
    msg = (
        f"the baseline {name!r} needs a plug-in that compares runs, and none is "
        "installed; leave it out."
    )
    path: Path = first_answer("baselines", name, runs, lacking=SpecError(msg))
    return path


def with_added(facts: RunFacts, judged: Judged, report: Path) -> RunFacts:
    """Return the facts of a run with what plug-ins add; `report` is its report.json.

    A run to which one cannot add is no parity that anybody can tell.

    Raises:
        ParityError: The run names what is not there, such as a baseline.

    """
    refused = []
    for adding in added("facts"):
        if adding.function is None:
            refused.append(adding.words)
            continue
        try:
            facts = adding.function(facts, judged, report)
        except ParityError:
            raise
        except Exception as error:  # noqa: BLE001  # a plug-in's own code raises anything
            refused.append(adding.failed(error))
    if not refused:
        return facts
    code = CANNOT_TELL if facts.exit_code == PARITY else facts.exit_code
    return replace(facts, stale=(*facts.stale, *refused), exit_code=code)


def write_reports(facts: RunFacts) -> tuple[list[Path], list[str]]:
    """Let plug-ins write their reports; return the paths, and why others are missing.

    A run's results are valid without them, so nothing here may end the run.
    """
    paths, missing = [], []
    for report in added("reports"):
        try:
            paths.append(report.called(facts))
        except ParityError as error:
            missing.append(str(error))
        except Exception as error:  # noqa: BLE001  # a plug-in's own code raises anything
            missing.append(report.failed(error))
    return paths, [text for text in missing if text not in facts.stale]


def tell_ci(text: str) -> Iterator[Line]:
    """Put a page beside a CI's job; yield a sentence where that fails."""
    if step := os.environ.get(STEP_SUMMARY):
        try:
            with Path(step).open("a", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError as error:
            said = f"{STEP_SUMMARY}, {step}, cannot be written to ({error.strerror})."
            yield from wrapped(said, indent=" ", tone="quiet")


def _told(baseline: str) -> str:
    """Return the name or path of a baseline as a report keeps it."""
    return with_tilde(Path(baseline)) if Path(baseline).is_absolute() else baseline


def _brief(verdict: CaseVerdict) -> dict[str, object]:
    first = verdict.first
    return {
        "suite": verdict.suite,
        "id": verdict.id,
        "outcome": verdict.outcome.value,
        "found": verdict.found.value,
        "reason": shortened(public(verdict.reason), MESSAGE),
        "first_divergence": first.row.probe if first else None,
        "sample": first.row.sample if first else None,
    }
