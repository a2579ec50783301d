"""Compare one build's time with another's, where the times are reliable."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.core.record import Benchmark
from harness.core.text import count
from harness.plugins.release import thresholds
from harness.plugins.release.thresholds import Change
from harness.report.times import QUIET, is_disturbed


def doubt(entry: Benchmark) -> str:
    """Return why a time says nothing about its build; empty if it is reliable."""
    if is_disturbed(entry.withheld):
        return (
            f"other work had over {QUIET:.0%} of the processor time asked for; time it "
            "again on a quiet machine"
        )
    for rounds in (entry.rounds, entry.over_pytorch or entry.rounds):
        if len(rounds) < thresholds.LEAST_ROUNDS:
            needed = f"it takes {thresholds.LEAST_ROUNDS} to know their spread"
            return f"{count(len(rounds), 'round')}, and {needed}"
    return ""


def compare_times(
    before: Benchmark, after: Benchmark, *, same_torch: bool
) -> tuple[Change, str]:
    """Compare a time with another, and its share of PyTorch's where both have it.

    Both were measured on the same machine. Other work slows both down, PyTorch often
    more. So a disturbed time says nothing about the build, and neither does its share.
    An unseen cause that slows the whole machine down, such as heat, affects both. So
    only a change in both counts (`benchmarks/bench_times.py`). The phrase has the
    numbers.
    """
    doubts: dict[str, list[str]] = {}
    for which, entry in (("the run before", before), ("this run", after)):
        if why := doubt(entry):
            doubts.setdefault(why, []).append(which)
    if doubts:
        texts = (f"in {' and '.join(which)}: {why}" for why, which in doubts.items())
        return Change.INCOMPARABLE, "; ".join(texts)
    changes = [thresholds.of_times(before.rounds, after.rounds)]
    text = _times(before.rounds, after.rounds)
    if same_torch and before.over_pytorch and after.over_pytorch:
        shares = before.over_pytorch, after.over_pytorch
        changes.append(thresholds.of_shares(*shares))
        text += f"; {_times(*shares)} of PyTorch's beside it"
    change = thresholds.agreed(changes)
    return change, "" if change is Change.SAME else text


def _times(before: Sequence[float], after: Sequence[float]) -> str:
    one, two = (statistics.median(rounds) for rounds in (before, after))
    spread = max((max(rounds) - min(rounds)) / 2 for rounds in (before, after)) / one
    return f"{one:.4g} → {two:.4g} ({two / one - 1:+.0%}, rounds within ±{spread:.0%})"
