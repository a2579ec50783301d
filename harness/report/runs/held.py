"""A run that has just ended, held against a baseline: what ``--parity-baseline`` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.report.runs.baseline import find_baseline, load_baseline
from harness.report.runs.diff import Diff, diff
from harness.report.runs.snapshot import Snapshot, load_snapshot
from harness.report.runs.tiers import rtol_by
from harness.suite.judge import Judge


def baselines_beside(runs: Path) -> Path:
    """Return the folder of baselines that belongs to a folder of runs."""
    return runs.expanduser().parent / "baselines"


def held_against(
    name: str, report: Path, judges: Mapping[str, Judge], *, whole: bool
) -> Diff:
    """Return how a run differs from a baseline.

    Args:
        name: Of the baseline, or its path.
        report: The run's ``report.json``.
        judges: Suite to who judges it.
        whole: Whether the run was of its whole suite. Of another, what it left out is
            not gone.

    Raises:
        ParityError: There is no such baseline.

    """
    folder = baselines_beside(report.parent.parent)
    before = load_baseline(find_baseline(folder, name)).snapshot
    after = load_snapshot(report)
    if not whole:
        before = _narrowed(before, after)
    if not after.benchmarks:
        # What is timed is timed after a run has ended.
        before = replace(before, benchmarks=())
    return diff(before, after, rtol_by(judges, after))


def _narrowed(before: Snapshot, after: Snapshot) -> Snapshot:
    """Return a baseline with the checks alone that a run was asked for."""
    cases = {
        name: replace(
            case,
            outcomes={
                what: outcome
                for what, outcome in case.outcomes.items()
                if what in after.cases[name].outcomes
            },
        )
        for name, case in before.cases.items()
        if name in after.cases
    }
    measured = [entry for entry in before.benchmarks if entry.case in cases]
    return replace(before, cases=cases, benchmarks=tuple(measured))
