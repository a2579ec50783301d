"""Which inputs a tuning tries: plain draws of two families, each a `Sample`.

`realistic` draws are the recipe's, over seeds and steps. `varied` draws go between the
profiles: each kind of input by its own knobs (`harness.recipes.varied`). Both are
independent, which a statement about inputs that were not tried rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.case import VARIED, Case, Component, ExportSettings, Sample
from harness.core.digest import digest_value
from harness.recipes.varied import Knob, knobs_of

REALISTIC = "realistic"
FAMILIES = (REALISTIC, VARIED)

STEPS = 64
"""Realistic draws go round timesteps and prompts by their index."""

SEEDS = 2**31

Shapes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All inputs of one component that a tuning may try.

    Attributes:
        component: Whose.
        shapes: Sizes to choose among.
        seed: Of the tuning; another one draws other inputs.

    """

    component: Component
    shapes: tuple[Shapes, ...]
    seed: int

    @property
    def knobs(self) -> dict[str, Knob]:
        """The component's knobs by name."""
        return knobs_of(self.component)

    def sizes(self, rng: np.random.Generator) -> Shapes:
        """Draw sizes; half the elements come twice as often, and cost the same time."""
        costs = [math.prod(size for _, size in shapes) for shapes in self.shapes]
        shares = np.reciprocal(costs, dtype=float)
        return self.shapes[int(rng.choice(len(costs), p=shares / shares.sum()))]

    def sample(
        self,
        family: str,
        name: str = "",
        *,
        shapes: Shapes,
        seed: int,
        knobs: tuple[tuple[str, float], ...] = (),
        step: int = 0,
    ) -> Sample:
        """Return a point; without a name it is called by a digest of what it is."""
        name = name or digest_value((shapes, seed, knobs, step))[:8]
        return Sample(
            profile=family,
            index=step if family == REALISTIC else 0,
            shapes=shapes,
            seed=seed,
            layers=False,
            knobs=knobs,
            label=f"{family}-s{self.seed}-{name}",
        )


def is_wide(case: Case) -> bool:
    """Whether the suite asks more of a case than realistic inputs."""
    return any(sample.profile != REALISTIC for sample in case.samples)


def shapes_of(cases: Sequence[Case]) -> tuple[Shapes, ...]:
    """Return the sizes to draw at; an open batch also smaller, and larger by one.

    Sizes that the suite finds too large to watch (``layers = false``) are left to the
    suite's own samples, unless it has no others.
    """
    settings = cases[0].export
    # An input that a tuning kept has a label, and may be larger than the suite asks.
    own = [s for case in cases for s in case.samples if not s.label]
    watched = [sample for sample in own if sample.layers]
    shapes = dict.fromkeys(sample.shapes for sample in watched or own)
    widest = max(dict(sizes).get("batch", 1) for sizes in shapes)
    if "batch" not in settings.dynamic:
        return tuple(shapes)
    batches = range(1, widest + 2)
    varied = (
        tuple(sorted({**dict(sizes), "batch": batch}.items()))
        for sizes in shapes
        for batch in batches
        if "batch" in dict(sizes)
    )
    return tuple(dict.fromkeys((*shapes, *varied)))


def baked(shapes: Shapes, settings: ExportSettings) -> Shapes:
    """Return the sizes that an exported graph holds fast."""
    return tuple(pair for pair in shapes if pair[0] not in settings.dynamic)


def independent(space: Space, family: str, count: int) -> Iterator[Sample]:
    """Yield draws that know nothing of one another.

    Knobs are drawn evenly over their range, or over its decades.
    """
    key = digest_value((space.component.name, family, space.seed))
    rng = np.random.default_rng(int(key[:16], 16))
    for index in range(count):
        knobs: tuple[tuple[str, float], ...] = ()
        if family == VARIED:
            knobs = tuple(
                (name, drawn(knob, rng.random())) for name, knob in space.knobs.items()
            )
        yield space.sample(
            family,
            str(index),
            shapes=space.sizes(rng),
            seed=int(rng.integers(SEEDS)),
            knobs=knobs,
            step=int(rng.integers(STEPS)),
        )


def drawn(knob: Knob, share: float) -> float:
    """Return where a knob stands at a share of its range, from 0 to 1.

    >>> drawn(Knob(low=0.01, high=100.0, even_in_decades=True), 0.5)
    1.0
    >>> drawn(Knob(low=0, high=999, whole=True), 1.0)
    999
    """
    if knob.even_in_decades:
        low, high = math.log10(knob.low), math.log10(knob.high)
        value = 10.0 ** (low + share * (high - low))
        return min(max(round(value, 12), knob.low), knob.high)
    value = knob.low + share * (knob.high - knob.low)
    return round(value) if knob.whole else value


def share_of(knob: Knob, value: float) -> float:
    """Return at which share of its range a knob stands.

    >>> share_of(Knob(low=0.01, high=100.0, even_in_decades=True), 1.0)
    0.5
    """
    if knob.even_in_decades:
        low, high, value = (math.log10(x) for x in (knob.low, knob.high, value))
    else:
        low, high = knob.low, knob.high
    return (value - low) / (high - low)
