"""A run that ends beside its baseline: what changed, and what that makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.core.table import Column, ReportTable
from harness.core.text import count
from harness.engine.finished_run import load_report
from harness.judge.run import beside_baseline
from harness.plugins.release.baseline import (
    baselines_in,
    find_baseline,
    load_baseline,
)
from harness.plugins.release.diff import Diff, diff, rtol_by
from harness.plugins.release.screen import diff_lines, notes, totals
from harness.plugins.release.selection import baselines_beside, with_verdicts
from harness.plugins.release.thresholds import Change
from harness.report.finish import Judged
from harness.report.run_facts import RunFacts, Since

_HOW = {
    Change.WORSE: "is worse than in",
    Change.GONE: "is gone, and was in",
    Change.OPEN: "may be worse than in",
    Change.INCOMPARABLE: "cannot be compared with",
}


def baseline_path(name: str, runs: Path) -> Path:
    """Return the path of the baseline that a folder of runs has by this name.

    Raises:
        ParityError: There is no such baseline.

    """
    return find_baseline(baselines_beside(runs), name)


def with_since(facts: RunFacts, judged: Judged, report: Path) -> RunFacts:
    """Return a run with the differences from its baseline, and with its exit code.

    Without a baseline the run has the command that follows. What a part of a suite left
    out does not count as gone.

    Raises:
        ParityError: There is no such baseline.

    """
    runs = report.parent.parent
    name = facts.about.get("baseline")
    if not name:
        return replace(facts, follows=_follows(facts, runs))
    before = load_baseline(baseline_path(name, runs)).report
    after = with_verdicts(load_report(runs, str(report)), judged.verdicts)
    if not judged.whole:
        before = before.only(lambda name, what: f"{name}/{what}" in after.checks)
    if not after.benchmarks:
        # Times are measured after a run has ended.
        before = replace(before, benchmarks=())
    since = since_of(diff(before, after, rtol_by(judged.judges, after)))
    code = beside_baseline(judged.code, worse=since.worse)
    return replace(facts, since=since, exit_code=code)


def since_of(found: Diff) -> Since:
    """Return the differences of two runs as reports show them."""
    return Since(
        before=found.before,
        tells=found.tells,
        worse=bool(found.blocking),
        lines=[*diff_lines(found)],
        conditions=[*totals(found), *notes(found)],
        reasons=[*_reasons(found)],
        table=_table(found) if found.changes else None,
    )


def _reasons(found: Diff) -> Iterator[tuple[str, str]]:
    blocking = [one for one in found.changes if one.blocks]
    caused = Counter(cause for change in blocking for cause in change.causes)
    for cause, results in caused.items():
        words = (
            f"Since the baseline {found.before}, {cause}, so "
            f"{count(results, 'result')} cannot be compared with it. If that is "
            "meant, `parity baseline accept` makes this run the baseline."
        )
        yield "", words
    for change in blocking:
        if not change.causes:
            how = _HOW[change.change]
            yield change.name, f"{how} the baseline {found.before}: {change.words}."


def _table(found: Diff) -> ReportTable:
    return ReportTable(
        id="since-table",
        caption=f"What is not as it was in {found.before}, the worst first",
        columns=(
            Column("change", [str(change.change) for change in found.changes]),
            Column("of", [change.name for change in found.changes]),
            Column("how", [change.words for change in found.changes]),
        ),
        unit="change",
    )


def _follows(facts: RunFacts, runs: Path) -> str:
    """Return the command that keeps a run, or compares it with what is kept."""
    next_steps, suites = facts.next_steps, {record.suite for record in facts.records}
    named = f"{next_steps.run}{next_steps.runs}"
    if not baselines_in(baselines_beside(runs)):
        return f"parity baseline accept {named}   keeps it for `parity gate`"
    command = next_steps.gate(*suites) if len(suites) == 1 else f"parity gate {named}"
    return f"{command}   compares it with the baseline"
