"""The work of `parity tune`: measure or read a tuning, and propose bounds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from harness.commands.progress import ProgressLines
from harness.core.case import Case
from harness.core.end_to_end import MIXED
from harness.core.errors import SuiteError
from harness.core.private import with_tilde
from harness.core.settings import SUITE_FILE, Settings
from harness.core.shown import print_lines
from harness.plugins.tune.edit import edit
from harness.plugins.tune.headroom import Headroom
from harness.plugins.tune.measure import tune
from harness.plugins.tune.proposal import propose
from harness.plugins.tune.record import Effort, Tuning, save_tuning
from harness.plugins.tune.screen import beyond_lines, edit_lines, tuning_lines
from harness.plugins.tune.toml_edit import Edit, text_of, write_all
from harness.plugins.tune.worst import worst_inputs_text
from harness.suite.judge import Judge
from harness.suite.stale import worst_inputs_of
from harness.suite.suite import Suite, load_suite


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
    # A drawing runs each network many times, so a pipeline is tuned where it is named.
    named = {pattern.partition("/")[0] for pattern in patterns}
    cases = [
        case
        for case in suite.select(patterns)
        if case.backend != MIXED and (isinstance(case, Case) or case.subject in named)
    ]
    if not cases:
        msg = (
            "a pipeline is tuned only by its name, as in `parity tune text2img`, and "
            "only in one runtime, because those of several runtimes share a table."
        )
        raise SuiteError(msg)
    progress = ProgressLines(sys.stderr)
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
    *,
    why: str,
    allow_looser: bool,
    write: bool,
    again: str,
    failed: Sequence[str],
) -> int:
    """Show the proposals, write them if `write`, and return the exit code.

    `again` is the command that writes. `failed` has a sentence for each case that could
    not be measured.

    Raises:
        ParityError: The tolerances cannot be changed. Then nothing is written.

    """
    judge = Judge.of(suite, Settings())
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
    print_lines(tuning_lines(tuning, proposals, failed))
    print_lines(beyond_lines(proposals))
    if write:
        write_all(edits)
    print_lines(edit_lines(edits, written=write, again=again))
    return 2 if failed else 0


def suite_of(tuning: Tuning, given: Path | None) -> Suite:
    """Return the suite that is given, or that in the current folder if it was tuned.

    A tuning may come from somebody else, and a suite imports its recipes. So the path
    in a tuning never makes a suite load.

    Raises:
        SuiteError: The suite cannot be read, or another one was tuned.

    """
    here = Path(SUITE_FILE).resolve()
    if given is None and tuning.suite not in {with_tilde(here), str(here)}:
        msg = (
            f"tuning {tuning.id} is of the suite {tuning.suite}, which is not in this "
            "folder; name the suite with --suite."
        )
        raise SuiteError(msg)
    return load_suite(given or Path(SUITE_FILE))


def of_suite(tuning: Tuning, suite: Suite, patterns: Sequence[str]) -> Tuning:
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
