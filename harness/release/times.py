"""One build's time held against another's, where it says something of the build."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.release import noise
from harness.release.noise import Change
from harness.release.snapshot import Benchmark
from harness.report.at_work import QUIET, is_disturbed
from harness.report.text import count


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
    disturbed = [
        which
        for which, entry in (("the run before", before), ("this run", after))
        if is_disturbed(entry.withheld)
    ]
    if disturbed:
        return Change.INCOMPARABLE, (
            f"in {' and '.join(disturbed)} other work had over {QUIET:.0%} of the "
            "processor time asked for; time it again on a quiet machine"
        )
    pairs = [("runs", before.runs, after.runs)]
    beside = same_torch and before.over_pytorch and after.over_pytorch
    if beside:
        pairs.append(("rounds", before.over_pytorch, after.over_pytorch))
    change = noise.agreed(noise.of_times(one, two) for _, one, two in pairs)
    if change is Change.SAME:
        return change, ""
    if change is Change.INCOMPARABLE:
        _, one, two = pairs[-1]
        what = "round" if beside else "measurement"
        fewest = count(min(len(one), len(two)), what)
        return change, f"{fewest}, and it takes {noise.LEAST_RUNS} to know their spread"
    words = "; ".join(_times(one, two, what) for what, one, two in pairs)
    return change, f"{words} of PyTorch's beside it" if beside else words


def _times(before: Sequence[float], after: Sequence[float], what: str) -> str:
    one, two = (statistics.median(runs) for runs in (before, after))
    spread = max((max(runs) - min(runs)) / 2 for runs in (before, after)) / one
    return f"{one:.4g} → {two:.4g} ({two / one - 1:+.0%}, {what} within ±{spread:.0%})"
