"""The work of `parity tune`: run on many inputs, or read such a run, and propose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from harness.commands.run import run_cases
from harness.core.case import Case
from harness.core.end_to_end import MIXED, Tested
from harness.core.errors import SuiteError
from harness.core.private import with_tilde
from harness.core.settings import SUITE_FILE, Settings
from harness.core.shown import print_lines
from harness.engine.finished_run import LAST
from harness.plugins.tune.edit import edit
from harness.plugins.tune.headroom import Headroom
from harness.plugins.tune.many import TOGETHER, UNENDED, Effort, ManyInputs
from harness.plugins.tune.proposal import propose
from harness.plugins.tune.record import Tuning, load_tuning
from harness.plugins.tune.screen import beyond_lines, edit_lines, tuning_lines
from harness.plugins.tune.toml_edit import Edit, text_of, write_all
from harness.plugins.tune.worst import worst_inputs_text
from harness.suite.judge import Judge
from harness.suite.stale import worst_inputs_of
from harness.suite.suite import Suite, load_suite

_INPUTS_A_LIMIT = 10
"""Number of inputs that a stage's time limit is meant for."""


def run_tuning(
    suite: Suite, patterns: Sequence[str], effort: Effort, settings: Settings
) -> Tuning:
    """Run the chosen cases on many inputs, as `parity run` does.

    Raises:
        ParityError: Nothing was measured, or the report cannot be written.

    """
    cases = list(_chosen(suite, patterns))
    if not cases:
        msg = (
            "a pipeline is tuned only by its name, as in `parity tune text2img`, and "
            "only in one runtime, because those of several runtimes share a table."
        )
        raise SuiteError(msg)
    seconds = suite.limits.timeout_s * TOGETHER / _INPUTS_A_LIMIT
    suite = replace(suite, limits=structs.replace(suite.limits, timeout_s=seconds))
    run_cases(
        suite,
        cases,
        settings,
        None,
        lambda engine, folder, cases: ManyInputs(
            engine=engine, folder=folder, suite=suite, effort=effort
        ).start(cases),
    )
    tuning = load_tuning(Path(settings.runs), LAST)
    there = {*tuning.cases, *tuning.failed}
    lost = {case.id: UNENDED.message for case in cases if case.id not in there}
    return replace(tuning, failed={**tuning.failed, **lost})


def _chosen(suite: Suite, patterns: Sequence[str]) -> Iterator[Tested]:
    """Yield the cases to tune: those of components, and of pipelines that are named."""
    # A drawing runs each network many times.
    named = {pattern.partition("/")[0] for pattern in patterns}
    for case in suite.select(patterns):
        if isinstance(case, Case):
            yield case
        elif case.backend != MIXED and case.subject in named:
            yield from (own for _, own in case.drawn(0, 0))


def show_tuning(
    suite: Suite,
    tuning: Tuning,
    headroom: Headroom,
    *,
    why: str,
    allow_looser: bool,
    write: bool,
    again: str,
) -> None:
    """Show the proposals, and write them if asked.

    `again` is the command that writes.

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
    print_lines(tuning_lines(tuning, proposals))
    print_lines(beyond_lines(proposals))
    if write:
        write_all(edits)
    print_lines(edit_lines(edits, written=write, again=again))


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
    """Return a tuning with the cases that the suite has and a pattern means, in order.

    Raises:
        SuiteError: A pattern means no case, or no case is left.

    """
    ids = [case.id for case in suite.select(patterns)]
    cases = {name: tuning.cases[name] for name in ids if name in tuning.cases}
    if not cases:
        msg = (
            f"tuning {tuning.id} has no case of {', '.join(patterns) or suite.path}; "
            "name other cases, or give its --suite."
        )
        raise SuiteError(msg)
    return replace(tuning, cases=cases)
