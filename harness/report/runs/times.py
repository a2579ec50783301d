"""One build's time held against another's, where it says something of the build."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.core.text import count
from harness.report.runs import thresholds
from harness.report.runs.cpu_load import QUIET, is_disturbed
from harness.report.runs.snapshot import Benchmark
from harness.report.runs.thresholds import Change


def doubt(entry: Benchmark) -> str:
    """Return why a time says nothing of its build; empty if it does."""
    if is_disturbed(entry.withheld):
        return (
            f"other work had over {QUIET:.0%} of the processor time asked for; time it "
            "again on a quiet machine"
        )
    for what, every in (("measurement", entry.runs), ("round", entry.over_pytorch)):
        if every and len(every) < thresholds.LEAST_RUNS:
            needed = f"it takes {thresholds.LEAST_RUNS} to know their spread"
            return f"{count(len(every), what)}, and {needed}"
    return ""


def compare_times(
    before: Benchmark, after: Benchmark, *, same_torch: bool
) -> tuple[Change, str]:
    """Hold a time against another, and its share of PyTorch's where both have it.

    A neighbour slows both down, PyTorch often more: a time that was disturbed says
    nothing of the build, and neither does its share. What slows the whole machine down
    unseen, as heat does, is in both: only what both say counts
    (`benchmarks/bench_times.py`).

    Args:
        before: Measured in one run.
        after: The same case and metric in another, on the same machine.
        same_torch: Whether both were measured beside the same PyTorch.

    Returns:
        What became of it, and that in words with numbers.

    """
    told: dict[str, list[str]] = {}
    for which, entry in (("the run before", before), ("this run", after)):
        if why := doubt(entry):
            told.setdefault(why, []).append(which)
    if told:
        doubts = (f"in {' and '.join(which)}: {why}" for why, which in told.items())
        return Change.INCOMPARABLE, "; ".join(doubts)
    pairs = [("runs", before.runs, after.runs)]
    beside = same_torch and before.over_pytorch and after.over_pytorch
    if beside:
        pairs.append(("rounds", before.over_pytorch, after.over_pytorch))
    change = thresholds.agreed(thresholds.of_times(one, two) for _, one, two in pairs)
    if change is Change.SAME:
        return change, ""
    words = "; ".join(_times(one, two, what) for what, one, two in pairs)
    return change, f"{words} of PyTorch's beside it" if beside else words


def _times(before: Sequence[float], after: Sequence[float], what: str) -> str:
    one, two = (statistics.median(runs) for runs in (before, after))
    spread = max((max(runs) - min(runs)) / 2 for runs in (before, after)) / one
    return f"{one:.4g} → {two:.4g} ({two / one - 1:+.0%}, {what} within ±{spread:.0%})"
