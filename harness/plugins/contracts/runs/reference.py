"""Check which inputs matter to a reference, and whether its outputs repeat."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from harness.core.case import Component, Sample
from harness.core.contract import is_batch
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.measure.named_arrays import Arrays, Run
from harness.plugins.contracts.runs.sensitivity import (
    BESIDE,
    EFFECTS,
    LIMIT_S,
    Asked,
    beside,
    differing,
    distance,
    effects,
    nearby,
    repeated,
)
from harness.recipes.inputs import draw

_DRAWS: tuple[tuple[str, int], ...] = (
    ("unit-normal", 0),
    ("unit-normal", 1),
    ("boundary", 0),
    ("large-mean", 0),
)
"""The first run's draw, then draws to change an input to: the first that differs."""


Sizes = tuple[tuple[str, int], ...]


def ask(
    run: Run, component: Component, sizes: Sizes, opened: Collection[str] = ()
) -> tuple[dict[str, object], Arrays]:
    """Change each input alone, and return the effects, and inputs and outputs.

    `opened` has the symbols whose sizes may be others. A batch is of two items or more.

    Raises:
        StageError: The reference returns other outputs for the same inputs.

    """
    asked, found = _asked(run, component, sizes)
    if gap := repeated(run, asked.base, asked.outputs, times=1):
        msg = (
            f"{component.name} remembers: asked again with the same inputs, after "
            f"others, the reference's outputs differ by up to {gap:.3e}; keep no state "
            "in forward."
        )
        raise StageError(msg, outcome=Outcome.REFERENCE)
    pair = _pair(sizes, opened)
    batch = _draws(component, pair)[0] if pair else {}
    moved = beside(run, component, batch)
    kept = replace(asked, batch=batch if moved else {})
    return {EFFECTS: found, BESIDE: moved}, kept.arrays


def _pair(sizes: Sizes, opened: Collection[str]) -> Sizes:
    """Return sizes of a batch of two items or more; empty if there is none."""
    pair = {
        symbol: max(size, 2) if is_batch(symbol) and symbol in opened else size
        for symbol, size in sizes
    }
    if not any(is_batch(symbol) and size > 1 for symbol, size in pair.items()):
        return ()
    return tuple(pair.items())


def effects_at(run: Run, component: Component, sizes: Sizes) -> dict[str, float]:
    """Return how much each input matters to a network."""
    _, found = _asked(run, component, sizes)
    return found


def _asked(
    run: Run, component: Component, sizes: Sizes
) -> tuple[Asked, dict[str, float]]:
    """Change each input alone: to another draw, or if none differs to a nearby value.

    A pipeline gives some inputs the same values at every step (Flux's guidance and
    positions, PixArt's sizes), so no other draw of them differs.
    """
    base, drawn = _draws(component, sizes)
    outputs, found = effects(run, base, drawn)
    start = time.monotonic()
    changed = dict(drawn)
    for name, value in base.items():
        late = time.monotonic() - start > LIMIT_S
        if late or _moves(found[name]) or (name in drawn and found[name] is None):
            continue
        for other in nearby(value):
            effect = _tried(run, {**base, name: other}, outputs)
            if _moves(effect) or (effect == 0.0 and found[name] is None):
                changed[name], found[name] = other, effect
            if _moves(effect):
                break
    asked = Asked(base=base, changed=changed, outputs=outputs)
    # Inputs that were not tried are left out, and those that gave no finite number.
    # What is not finite may hide that an input matters.
    shown = all(np.isfinite(one).all() for one in outputs.values())
    return asked, {n: v for n, v in found.items() if _moves(v) or (shown and v == 0.0)}


def _moves(effect: float | None) -> TypeGuard[float]:
    return effect is not None and math.isfinite(effect) and effect > 0.0


def _tried(run: Run, feeds: Arrays, outputs: Arrays) -> float | None:
    """Return how far the outputs move; None where a network refuses such an input."""
    try:
        return distance(outputs, run(feeds))
    except Exception:  # noqa: BLE001  # networks raise anything
        return None


def _draws(component: Component, sizes: Sizes) -> tuple[Arrays, Arrays]:
    draws = _DRAWS
    if not all(spec.draw for spec in component.inputs):  # only the recipe can
        draws = tuple(("realistic", index) for index in range(len(_DRAWS)))
    base, *others = (
        draw(component, Sample(profile=profile, index=index, shapes=sizes))
        for profile, index in draws
    )
    return base, differing(base, others)
