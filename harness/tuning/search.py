"""Look for the inputs that are worst, and not only at random.

Hypothesis draws points, remembers which were worst for each case (`target`), and
climbs from there. Its draws are no independent ones, so no confidence rests on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from harness.spec import Sample
from harness.tuning.points import Space
from harness.tuning.strategies import samples

Scores = Mapping[str, float]
"""A case's id to how near its limit it came; larger is worse."""


def search(
    space: Space,
    family: str,
    count: int,
    measure: Callable[[Sample], Scores],
) -> None:
    """Measure `count` points, led by the scores that `measure` returns."""
    if count < 1:
        return
    from hypothesis import HealthCheck, Phase, given, seed, settings, target

    made = 0

    @seed(space.seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(sample=samples(space, family))
    def climb(sample: Sample) -> None:
        nonlocal made
        if made >= count:  # it may ask for a few more while it climbs
            return
        made += 1
        for case, score in measure(sample).items():
            if math.isfinite(score):
                target(score, label=case)

    climb()
