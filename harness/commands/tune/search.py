"""Look for the inputs that are worst, and not only at random.

Half of a search explores: Hypothesis draws points, the simple ones and the ends of
every knob first. The other half climbs: a step away from the worst known point of each
case, shorter whenever it leads nowhere. Neither draws independently, so no confidence
rests on what they try. (Hypothesis can climb too, by `target`; on knobs it came no
nearer to a maximum than as many random draws.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from harness.commands.tune.inputs import SEEDS, Space, drawn, share_of
from harness.commands.tune.strategies import samples
from harness.core.case import Sample

Scores = Mapping[str, float]
"""A case's id to how near its limit it came; larger is worse."""

Known = dict[str, tuple[float, Sample]]
"""A case's id to the worst score so far, and where that was."""

_STRIDE: Final = 0.2
_SHORTEST: Final = 0.002
_OTHER: Final = 0.3
"""How often a step also takes another seed, or other sizes."""


def search(
    space: Space,
    family: str,
    count: int,
    measure: Callable[[Sample], Scores],
    known: Known,
) -> None:
    """Measure `count` points, and keep in `known` what is worst for each case."""
    explored = count // 2
    _explore(space, family, explored, measure, known)
    _climb(space, count - explored, measure, known)


def note(known: Known, sample: Sample, scores: Scores) -> set[str]:
    """Take a sample's scores into `known`; return the cases that it is worst for."""
    worst = {
        case
        for case, score in scores.items()
        if math.isfinite(score) and score > known.get(case, (-math.inf, sample))[0]
    }
    for case in worst:
        known[case] = (scores[case], sample)
    return worst


def _explore(
    space: Space,
    family: str,
    count: int,
    measure: Callable[[Sample], Scores],
    known: Known,
) -> None:
    if count < 1:
        return
    from hypothesis import HealthCheck, Phase, given, seed, settings

    @seed(space.seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(sample=samples(space, family))
    def look(sample: Sample) -> None:
        note(known, sample, measure(sample))

    look()


def _climb(
    space: Space,
    count: int,
    measure: Callable[[Sample], Scores],
    known: Known,
) -> None:
    """Step from the worst point of one case after the other."""
    rng = np.random.default_rng([space.seed, count])
    strides = dict.fromkeys(known, _STRIDE)
    cases = list(known)
    for step in range(count if cases else 0):
        case = cases[step % len(cases)]
        sample = _near(space, known[case][1], strides[case], rng)
        if case in note(known, sample, measure(sample)):
            strides[case] = min(1.5 * strides[case], _STRIDE)
        else:
            strides[case] = max(0.8 * strides[case], _SHORTEST)


def _near(
    space: Space,
    base: Sample,
    stride: float,
    rng: np.random.Generator,
) -> Sample:
    """Return a point so far from another; one without knobs differs by its seed."""
    knobs = []
    ranges = space.knobs
    for name, value in base.knobs:
        knob = ranges[name]
        share = share_of(knob, value) + stride * rng.standard_normal()
        knobs.append((name, drawn(knob, min(max(share, 0.0), 1.0))))
    seed, shapes = base.seed, base.shapes
    if not knobs or rng.random() < _OTHER:
        seed = int(rng.integers(SEEDS))
    if rng.random() < _OTHER:
        shapes = space.sizes(rng)
    return space.sample(
        base.profile,
        shapes=shapes,
        seed=seed,
        knobs=tuple(knobs),
        step=base.index,
    )
