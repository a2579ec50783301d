"""The work of `parity tune`: measure or read a tuning, propose bounds, or check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from harness.commands.progress import ProgressLines, moves
from harness.commands.tune.drift import drift_lines
from harness.commands.tune.edit import edit
from harness.commands.tune.headroom import Headroom
from harness.commands.tune.measure import tune
from harness.commands.tune.proposal import propose
from harness.commands.tune.record import (
    FILE,
    Effort,
    Tuning,
    find_tuning,
    load_tuning,
    save_tuning,
)
from harness.commands.tune.screen import beyond_lines, edit_lines, tuning_lines
from harness.commands.tune.toml_edit import Edit, text_of
from harness.commands.tune.worst import worst_inputs_text
from harness.core.case import Case
from harness.core.errors import SuiteError
from harness.core.settings import Settings
from harness.core.text import Line
from harness.engine.run_folder import load_report
from harness.judge.case import CaseVerdict, skipped
from harness.report.rejudge import rejudge
from harness.suite.judge import Judge
from harness.suite.stale import worst_inputs_of
from harness.suite.suite import Suite, load_suite

Show = Callable[[Iterable[Line]], None]


def run_tuning(
    suite: Suite,
    patterns: Sequence[str],
    effort: Effort,
    settings: Settings,
    folder: Path,
) -> tuple[Tuning, tuple[str, ...]]:
    """Measure the chosen cases, show the progress on stderr, and write the record.

    Raises:
        ParityError: Nothing could be measured, or the record cannot be written.

    """
    cases = [case for case in suite.select(patterns) if isinstance(case, Case)]
    if not cases:
        msg = "pipelines are not tuned; name a component or its case."
        raise SuiteError(msg)
    progress = ProgressLines(sys.stderr, live=moves(sys.stderr))
    try:
        return tune(
            suite,
            cases,
            effort,
            settings,
            datetime.now().astimezone(),
            keep=lambda tuning: save_tuning(tuning, folder / tuning.id),
            on_progress=progress.tell,
        )
    finally:
        progress.close()


def show_tuning(
    suite: Suite,
    tuning: Tuning,
    headroom: Headroom,
    show: Show,
    *,
    why: str,
    allow_looser: bool,
    write: bool,
    options: str,
    failed: Sequence[str] = (),
) -> int:
    """Show the proposals, write them if `write`, and return the exit code.

    Args:
        suite: The suite, whose tolerances are tuned.
        tuning: The measurements.
        headroom: The margin that a bound must leave.
        show: Prints lines.
        why: The reason for looser bounds.
        allow_looser: Whether bounds may become looser.
        write: Whether to write, or only to show.
        options: The given options, to print the command that writes.
        failed: A sentence for each case that could not be measured.

    Raises:
        ParityError: The tolerances cannot be changed. Then nothing is written.

    """
    judge = Judge.of(suite, Settings())
    tuning = of_suite(tuning, suite)
    proposals = propose(tuning, judge, headroom, allow_looser=allow_looser)
    worst = worst_inputs_of(suite)
    edits = (
        edit(judge.policy, tuning, proposals, headroom, why),
        Edit(
            path=worst,
            old=text_of(worst),
            new=worst_inputs_text(worst, tuning, judge.gaps),
        ),
    )
    show(tuning_lines(tuning, proposals, failed))
    show(beyond_lines(proposals))
    if write:
        for one in edits:
            if one.diff:
                one.write()
    again = f"parity tune --from {tuning.id} --write{options}"
    show(edit_lines(edits, written=write, again=again))
    return 2 if failed else 0


def check(
    name: str,
    runs: Path,
    tunings: Path,
    *,
    moved_to: Suite | None,
    headroom: Headroom,
    show: Show,
) -> int:
    """Show which checks of a run or a tuning have moved; return 1 if one has.

    Raises:
        ParityError: There is no such run or tuning, its suite is gone, or nothing was
            compared.

    """
    found, verdicts = _verdicts(name, runs, tunings, moved_to)
    if not verdicts:
        msg = f"{found} compared nothing, so nothing in it can have moved."
        raise SuiteError(msg)
    lines, has_moved = drift_lines(verdicts, headroom, found)
    show(lines)
    return 1 if has_moved else 0


def _verdicts(
    name: str, runs: Path, tunings: Path, moved_to: Suite | None
) -> tuple[str, list[CaseVerdict]]:
    if (tunings / name / FILE).is_file() or Path(name, FILE).is_file():
        tuning = load_tuning(tunings, str(find_tuning(tunings, name)))
        suite = moved_to or load_suite(Path(tuning.suite))
        judge = Judge.of(suite, Settings())
        verdicts = [
            judge.check(case.record, what)
            for case in of_suite(tuning, suite).cases.values()
            for what in dict.fromkeys(row.what for row in case.record.rows)
        ]
        return f"tuning {tuning.id}", verdicts
    report = load_report(runs, name)
    again = rejudge(report, Settings(), moved_to)
    shown = [one for one in again.verdicts if not skipped(one, report.required)]
    return f"run {report.id}", shown


def of_suite(tuning: Tuning, suite: Suite, patterns: Sequence[str] = ()) -> Tuning:
    """Return a tuning with only the cases that the suite has and a pattern means.

    Raises:
        SuiteError: A pattern means no case, or no case is left.

    """
    ids = {case.id for case in suite.select(patterns)}
    cases = {name: case for name, case in tuning.cases.items() if name in ids}
    if not cases:
        msg = (
            f"tuning {tuning.id} has no case of {', '.join(patterns) or suite.path}; "
            "name other cases, or give its --suite."
        )
        raise SuiteError(msg)
    return replace(tuning, cases=cases)
