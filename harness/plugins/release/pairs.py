"""Compare the pairs of a build with the same pairs of the accepted build."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.plugins.pictures.distribution import (
    ACCEPTED,
    READ,
    Conclusion,
    pair_words,
    results_of,
    verdict_of,
    worst_of,
)
from harness.plugins.release.thresholds import (
    PAIR_SHARE,
    RMS_GROWTH,
    RMS_GROWTH_ELSEWHERE,
    Change,
)

Pairs = Mapping[str, Any]

COMPARED = ("by", "margins", "prompts", "seeds", "losses", "limits")
"""The facts about pairs that a baseline keeps, because pairs are compared by them."""


def compare_pairs(
    before: Pairs, after: Pairs, *, elsewhere: bool = False
) -> tuple[Change, str]:
    """Return how the pairs of two runs differ, and a phrase about it.

    The limit of a pair is the error that the accepted build has on it, times the growth
    that counts for every other value too; the growth is larger where the runs were made
    on two processors. The same sequential test decides. Where it is open, pictures of
    which none is worse are the same, however few they are.
    """
    if before["by"] != after["by"] or before["margins"] != after["margins"]:
        return Change.INCOMPARABLE, "the pairs have another margin"
    if not _common(before, after):
        return Change.INCOMPARABLE, "no pair of prompt and seed is in both runs"
    growth = RMS_GROWTH_ELSEWHERE if elsewhere else RMS_GROWTH
    worse = against(before, after, growth)
    verdict = verdict_of(worse)
    if verdict is Conclusion.WORSE:
        return Change.WORSE, pair_words(worse)
    if verdict_of(against(after, before, growth)) is Conclusion.WORSE:
        return Change.BETTER, "most pictures are better than the accepted build's"
    tried = [one for each in results_of(worse).values() for one in each]
    if verdict is Conclusion.OPEN and any(one.worse for one in tried):
        return Change.OPEN, pair_words(worse)
    return Change.SAME, ""


def _common(before: Pairs, after: Pairs) -> list[tuple[int, int]]:
    """Return the places of each pair that both runs drew."""
    places = {
        pair: place
        for place, pair in enumerate(
            zip(before["prompts"], before["seeds"], strict=True)
        )
    }
    now = enumerate(zip(after["prompts"], after["seeds"], strict=True))
    return [(places[pair], place) for place, pair in now if pair in places]


def against(before: Pairs, after: Pairs, growth: float) -> dict[str, Any]:
    """Return the pairs of `after`, with limits from the errors of `before`."""
    common = _common(before, after)
    losses: dict[str, list[float]] = {}
    limits: dict[str, list[float]] = {}
    for metric, now in after["losses"].items():
        was = before["losses"][metric]
        if metric == READ:
            losses[metric] = [max(0.0, now[b] - was[a]) for a, b in common]
            continue
        # A picture that is not finite in either build is as it was.
        losses[metric] = [
            0.0 if math.isnan(now[b]) and math.isnan(was[a]) else now[b]
            for a, b in common
        ]
        # An error far below what may ship is no reason against a release.
        limits[metric] = [
            max(
                math.inf if math.isnan(was[a]) else was[a] * growth,
                after["limits"][metric][b] * PAIR_SHARE,
            )
            for a, b in common
        ]
    found: dict[str, Any] = {
        "by": ACCEPTED,
        "margins": after["margins"],
        "prompts": [after["prompts"][b] for _, b in common],
        "seeds": [after["seeds"][b] for _, b in common],
        "losses": losses,
        "limits": limits,
    }
    return found | {"worst": worst_of(found)}
