"""`parity tune`, below its options: tune or read, propose, show, write; or check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from harness.commands.progress import ProgressLines, moves
from harness.commands.tune.drift import drifts
from harness.commands.tune.edit import Edit, edit, text_of
from harness.commands.tune.extent import Headroom
from harness.commands.tune.keep import worst_inputs_text
from harness.commands.tune.proposal import propose
from harness.commands.tune.record import (
    FILE,
    Tuning,
    find_tuning,
    load_tuning,
    save_tuning,
)
from harness.commands.tune.screen import (
    beyond_lines,
    drift_lines,
    edit_lines,
    noise_lines,
    trade_lines,
    tuning_lines,
)
from harness.commands.tune.tune import Asked, tune
from harness.core.case import Case
from harness.core.errors import SpecError, SuiteError
from harness.core.settings import Settings
from harness.core.text import Line
from harness.engine.run_folder import load_report
from harness.judge.case import CaseVerdict, skipped
from harness.report.rejudge import rejudge
from harness.suite.extra_inputs import FILE as WORST_INPUTS
from harness.suite.judge import Judge
from harness.suite.suite import Suite, load_suite

Show = Callable[[Iterable[Line]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to become of the measurements.

    Attributes:
        headroom: What a bound leaves free.
        allow_looser: Whether bounds may move outwards.
        why: The reason for that.
        write: Whether to write, or only to show.
        options: What the command was given, to be given again.

    """

    headroom: Headroom
    allow_looser: bool = False
    why: str = ""
    write: bool = False
    options: str = ""

    def __post_init__(self) -> None:
        if self.allow_looser and not self.why.strip():
            msg = 'loosening needs its reason: --why "GroupNorm sums in another order".'
            raise SpecError(msg)


def run_tuning(
    suite: Suite, patterns: Sequence[str], asked: Asked, folder: Path
) -> tuple[Tuning, tuple[str, ...]]:
    """Measure the chosen cases, show how far it is on stderr, and record it.

    Raises:
        ParityError: Nothing could be measured, or the record cannot be written.

    """
    cases = [case for case in suite.select(patterns) if isinstance(case, Case)]
    if not cases:
        msg = "pipelines are not tuned; name a component or its case."
        raise SuiteError(msg)
    progress = ProgressLines(sys.stderr, live=moves(sys.stderr))
    try:
        now = datetime.now().astimezone()
        tuning, failed = tune(
            suite, cases, asked, now, on_progress=progress.tell, say=progress.line
        )
    finally:
        progress.close()
    save_tuning(tuning, folder / tuning.id)
    return tuning, failed


def show_tuning(
    suite: Suite,
    tuning: Tuning,
    wanted: Wanted,
    show: Show,
    failed: Sequence[str] = (),
) -> int:
    """Show what is proposed, write it if asked, and return the exit code.

    Raises:
        ParityError: The tolerances cannot be changed, and nothing is.

    """
    judge = Judge.of(suite, Settings())
    tuning = _of_suite(tuning, suite)
    proposals = propose(
        tuning, judge, wanted.headroom, allow_looser=wanted.allow_looser
    )
    cases = list(tuning.cases.values())
    edits = (
        edit(judge.policy, tuning, proposals, wanted.headroom, wanted.why),
        _worst_inputs(suite, tuning, judge),
    )
    show(tuning_lines(tuning, proposals, failed))
    show(noise_lines(cases))
    show(trade_lines(cases))
    show(beyond_lines(proposals))
    if wanted.write:
        for one in edits:
            if one.diff:
                one.write()
    again = f"parity tune --from {tuning.id} --write{wanted.options}"
    show(edit_lines(edits, written=wanted.write, again=again))
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
    """Say which checks of a run or a tuning have moved; 1 if one has.

    Raises:
        ParityError: There is neither, its suite is gone, or nothing was compared.

    """
    of, verdicts = _verdicts(name, runs, tunings, moved_to)
    if not verdicts:
        msg = f"{of} compared nothing, so nothing in it can have moved."
        raise SuiteError(msg)
    moved = list(drifts(verdicts, headroom))
    show(drift_lines(moved, len(verdicts), of))
    return 1 if moved else 0


def _verdicts(
    name: str, runs: Path, tunings: Path, moved_to: Suite | None
) -> tuple[str, list[CaseVerdict]]:
    if (tunings / name / FILE).is_file() or Path(name, FILE).is_file():
        tuning = load_tuning(tunings, str(find_tuning(tunings, name)))
        suite = moved_to or load_suite(Path(tuning.suite))
        judge = Judge.of(suite, Settings())
        tuning = _of_suite(tuning, suite)
        verdicts = [
            judge.check(case.record, what)
            for case in tuning.cases.values()
            for what in dict.fromkeys(row.what for row in case.record.rows)
        ]
        return f"tuning {tuning.id}", verdicts
    report = load_report(runs, name)
    again = rejudge(report, Settings(), moved_to)
    told = [one for one in again.verdicts if not skipped(one, report.required)]
    return f"run {report.id}", told


def only(tuning: Tuning, suite: Suite, patterns: Sequence[str]) -> Tuning:
    """Return a tuning of some of its cases.

    Raises:
        SuiteError: A pattern means no case, or none that was tuned.

    """
    ids = {case.id for case in suite.select(patterns)}
    cases = {name: case for name, case in tuning.cases.items() if name in ids}
    if not cases:
        msg = f"tuning {tuning.id} has no case of {', '.join(patterns)}."
        raise SuiteError(msg)
    return replace(tuning, cases=cases)


def _of_suite(tuning: Tuning, suite: Suite) -> Tuning:
    """Return a tuning without cases that the suite no longer has.

    Raises:
        SuiteError: None is left.

    """
    ids = {case.id for case in suite.cases}
    cases = {name: case for name, case in tuning.cases.items() if name in ids}
    if not cases:
        msg = f"{suite.path} has no case of tuning {tuning.id}; give its --suite."
        raise SuiteError(msg)
    return replace(tuning, cases=cases)


def _worst_inputs(suite: Suite, tuning: Tuning, judge: Judge) -> Edit:
    path = suite.path.parent / WORST_INPUTS
    old = text_of(path) if path.is_file() else ""
    return Edit(path=path, old=old, new=worst_inputs_text(path, tuning, judge.gaps))
