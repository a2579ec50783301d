"""The inputs that a tuning tries: independent draws of two families, each a `Sample`.

`realistic` draws come from the recipe, over seeds and steps. `varied` draws are between
the profiles (`harness.recipes.varied`). The draws must be independent, because a
statement about inputs that were not tried depends on that. A pipeline draws pairs of
prompt and seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from harness.core.case import VARIED, Case, Component, Sample
from harness.core.digest import digest_value
from harness.recipes.varied import parameters_of

REALISTIC = "realistic"

_STEPS = 64
"""Realistic draws have a step below this; recipes choose timestep and prompt by it."""

_SEEDS = 2**31

Shapes = tuple[tuple[str, int], ...]


def is_wide(case: Case) -> bool:
    """Whether the suite tests a case on more than realistic inputs."""
    return any(sample.profile != REALISTIC for sample in case.samples)


def shapes_of(cases: Sequence[Case]) -> tuple[Shapes, ...]:
    """Return the sizes to draw at; an open batch is also smaller, and larger by one.

    Sizes that the suite does not compare layer by layer (``layers = false``) are left
    out, unless the suite has no others. The suite's own samples cover them.
    """
    # An input that an earlier tuning kept has a label. It may exceed the suite's sizes.
    own = [s for case in cases for s in case.samples if not s.label]
    watched = [sample for sample in own if sample.layers]
    shapes = dict.fromkeys(sample.shapes for sample in watched or own)
    if "batch" not in cases[0].export.dynamic:
        return tuple(shapes)
    widest = max(dict(sizes).get("batch", 1) for sizes in shapes)
    varied = (
        tuple(sorted({**dict(sizes), "batch": batch}.items()))
        for sizes in shapes
        for batch in range(1, widest + 2)
        if "batch" in dict(sizes)
    )
    return tuple(dict.fromkeys((*shapes, *varied)))


def independent(
    component: Component,
    shapes: Sequence[Shapes],
    family: str,
    count: int,
    seed: int = 0,
) -> Iterator[Sample]:
    """Yield independent draws; another seed gives other draws.

    Parameters are drawn uniformly over their range, or over its decades.
    """
    key = digest_value((component.name, family, seed))
    rng = np.random.default_rng(int(key[:16], 16))
    # A shape of half the elements is drawn twice as often, so each costs the same time.
    costs = [math.prod(size for _, size in sizes) for sizes in shapes]
    shares = np.reciprocal(costs, dtype=float)
    shares /= shares.sum()
    for index in range(count):
        knobs: tuple[tuple[str, float], ...] = ()
        if family == VARIED:
            knobs = tuple(
                (name, parameter.at(rng.random()))
                for name, parameter in parameters_of(component).items()
            )
        sizes = shapes[int(rng.choice(len(costs), p=shares))]
        drawn, step = int(rng.integers(_SEEDS)), int(rng.integers(_STEPS))
        yield Sample(
            profile=family,
            index=step if family == REALISTIC else 0,
            shapes=sizes,
            seed=drawn,
            layers=False,
            knobs=knobs,
            label=f"{family}-s{seed}-{index}",
        )
