"""Compare one build's time with another's, where the times are reliable."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from harness.core.record import Benchmark
from harness.core.text import count
from harness.report.runs import thresholds
from harness.report.runs.thresholds import Change

QUIET = 0.05
"""Largest share of the processor time that other work may take for a time to be
reliable; see `benchmarks/bench_times.py`."""


def quartiles(runs: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of runs, between the ends of their middle half.

    >>> quartiles([4.0]), quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    ((4.0, 4.0, 4.0), (2.0, 3.0, 4.0))
    """
    if len(runs) == 1:
        return runs[0], runs[0], runs[0]
    low, middle, high = statistics.quantiles(runs, n=4, method="inclusive")
    return low, middle, high


def is_disturbed(withheld: float | None) -> bool:
    """Return whether other work took too much of the processor for a reliable time."""
    return withheld is not None and withheld > QUIET


def disturbed_words(shares: Iterable[float | None]) -> str:
    """Return a sentence about rows that other work disturbed; empty for none.

    >>> disturbed_words([0.0, 0.33, None])[:52]
    'other work took up to 33% of the processor time that'
    """
    disturbed = [share for share in shares if share and is_disturbed(share)]
    if not disturbed:
        return ""
    return (
        f"other work took up to {max(disturbed):.0%} of the processor time that "
        f"{count(len(disturbed), 'row')} asked for: the gate judges no such time; time "
        "again on a quiet machine"
    )


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
