"""Ask a reference which inputs matter, and whether it answers the same again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from harness.calls import EFFECTS, Arrays, Asked, Run, differing, effects, repeated
from harness.errors import StageError
from harness.inputs import draw
from harness.outcome import Outcome
from harness.spec import Component, Sample

_DRAWS: tuple[tuple[str, int], ...] = (
    ("unit-normal", 0),
    ("unit-normal", 1),
    ("boundary", 0),
    ("large-mean", 0),
)
"""What is asked first, and draws to change an input to: the first that differs."""


Sizes = tuple[tuple[str, int], ...]


def ask(
    run: Run, component: Component, sizes: Sizes, folder: Path
) -> dict[str, object]:
    """Change each input alone, write what was asked, and return the effects.

    Args:
        run: The reference.
        component: Its inputs.
        sizes: Of what is drawn.
        folder: Gets the questions and answers.

    Raises:
        StageError: The reference gives another answer when it is asked again.

    """
    base, changed = _draws(component, sizes)
    outputs, found = effects(run, base, changed)
    if gap := repeated(run, base, outputs, times=1):
        msg = (
            f"{component.name} remembers: asked again with the same inputs, after "
            f"others, the reference's outputs differ by up to {gap:.3e}; keep no state "
            "in forward."
        )
        raise StageError(msg, outcome=Outcome.REFERENCE)
    Asked(base=base, changed=changed, outputs=outputs).save(folder)
    return {EFFECTS: _numbers(found)}


def effects_at(run: Run, component: Component, sizes: Sizes) -> dict[str, float]:
    """Return how much each input matters to a network."""
    base, changed = _draws(component, sizes)
    _, found = effects(run, base, changed)
    return _numbers(found)


def _draws(component: Component, sizes: Sizes) -> tuple[Arrays, Arrays]:
    draws = _DRAWS
    if not all(spec.draw for spec in component.inputs):  # only the recipe can
        draws = tuple(("realistic", index) for index in range(len(_DRAWS)))
    base, *others = (
        draw(component, Sample(profile=profile, index=index, shapes=sizes))
        for profile, index in draws
    )
    return base, differing(base, others)


def _numbers(found: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what was not tried, and what gave no number to compare."""
    return {n: v for n, v in found.items() if v is not None and math.isfinite(v)}
