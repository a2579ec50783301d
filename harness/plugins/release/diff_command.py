"""The command `parity diff`: compare two runs, or follow the changes over many."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.options import JUDGED_BY, RUNS, loaded_suites
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY
from harness.core.shown import echo, print_lines
from harness.core.text import count, few

if TYPE_CHECKING:
    from harness.engine.finished_run import Report
    from harness.suite.suite import Suite


@click.command()
@click.argument("names", metavar="[RUN]...", nargs=-1)
@click.option(
    "--last",
    type=click.IntRange(min=2),
    help="Compare so many of the newest runs of the last run's suite.",
)
@click.option("--case", default="*", help="Of these cases alone: unet/mnn/*.")
@RUNS
@JUDGED_BY
def diff(
    *,
    names: tuple[str, ...],
    last: int | None,
    case: str,
    runs: str,
    suites: tuple[Path, ...],
) -> int:
    """Compare each RUN with those before it, row by row. A RUN is a run or a baseline.

    With one RUN, the last run is compared with it. `parity diff last` compares the
    last run with the one before it of the same suite. With three or more RUNs (oldest
    first), or with --last, the command shows in which run something moved and what
    changed there.

    Exit codes: 0 nothing is worse; 1 something is worse, gone, inconclusive or
    incomparable; 2 no check of one run could be compared with a check of another.
    """
    from harness.plugins.release.selection import compared_names

    folder = Path(runs)
    chosen, unreadable = compared_names(names, last, folder)
    compare = _course if chosen[2:] else _two
    code = compare(chosen, case, folder, loaded_suites(suites))
    if unreadable:
        echo(f"  {count(unreadable, 'run')} of another version left out")
    return code


def _two(names: Sequence[str], case: str, runs: Path, given: Sequence[Suite]) -> int:
    from harness.plugins.release.diff import diff as compared
    from harness.plugins.release.diff import rtol_by
    from harness.plugins.release.screen import diff_lines
    from harness.plugins.release.selection import load_many
    from harness.report.suites import judges_beside

    both = list(load_many(runs, names))
    _refuse_no_case(case, both)
    one, two = (_only(case, run) for run in both)
    # A baseline does not know where its suite is.
    known = next((run for run in (two, one) if run.name), two)
    found = compared(one, two, rtol_by(judges_beside(known, given), two))
    print_lines(diff_lines(found))
    if not found.tells:
        return CANNOT_TELL
    return NO_PARITY if found.blocking else PARITY


def _course(names: Sequence[str], case: str, runs: Path, given: Sequence[Suite]) -> int:
    from harness.plugins.release.course import course
    from harness.plugins.release.diff import rtol_by
    from harness.plugins.release.screen import course_lines
    from harness.plugins.release.selection import load_many
    from harness.report.suites import judges_beside

    last = next(load_many(runs, names[-1:]))
    _refuse_no_case(case, [last])
    judges = judges_beside(last, given)
    found = load_many(runs, names)
    steps = list(
        course((_only(case, run) for run in found), lambda run: rtol_by(judges, run))
    )
    print_lines(course_lines(steps))
    if not any(step.tells for step in steps[1:]):
        return CANNOT_TELL
    blocks = any(finding.blocks for step in steps for finding in step.moved)
    return NO_PARITY if blocks else PARITY


def _only(case: str, run: Report) -> Report:
    return run.only(lambda name, _: fnmatchcase(name, case))


def _refuse_no_case(case: str, runs: Sequence[Report]) -> None:
    there = list(dict.fromkeys(name for run in runs for name in run.names.values()))
    if there and not any(fnmatchcase(name, case) for name in there):
        msg = f"no case of these runs matches {case!r}; they have {few(there)}."
        raise ParityError(msg)
