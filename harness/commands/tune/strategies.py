"""Hypothesis strategies for every kind of input, as points of a space.

An input is not drawn by Hypothesis value by value: its knobs and its seed are, so that
a point is a line in a file and can be drawn again anywhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from harness.commands.tune.inputs import SEEDS, STEPS, Space
from harness.core.case import VARIED, Sample
from harness.recipes.varied import Knob

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def samples(space: Space, family: str) -> SearchStrategy[Sample]:
    """Return points of one family."""
    # Few seeds: where knobs lead somewhere, the noise in between would hide it.
    seeds = st.integers(0, 3 if family == VARIED else SEEDS - 1)
    knobs = {
        name: positions(knob) for name, knob in space.knobs.items() if family == VARIED
    }

    def sample(stands: dict[str, float], shapes: int, seed: int, step: int) -> Sample:
        return space.sample(
            family,
            shapes=space.shapes[shapes],
            seed=seed,
            knobs=tuple(stands.items()),
            step=step,
        )

    return st.builds(
        sample,
        st.fixed_dictionaries(knobs),
        st.integers(0, len(space.shapes) - 1),
        seeds,
        st.integers(0, STEPS - 1),
    )


def positions(knob: Knob) -> SearchStrategy[float]:
    """Return the positions of one knob; decades are climbed as easily as steps."""
    if knob.whole:
        return st.integers(int(knob.low), int(knob.high))
    if not knob.even_in_decades:
        return st.floats(knob.low, knob.high, allow_subnormal=False)
    low, high = math.log10(knob.low), math.log10(knob.high)
    return st.floats(low, high, allow_subnormal=False).map(
        lambda decades: min(max(10.0**decades, knob.low), knob.high)
    )
