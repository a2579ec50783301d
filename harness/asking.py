"""Ask PyTorch's module which inputs matter, and whether it answers the same again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from harness.calls import EFFECTS, Arrays, Asked, Run, differing, effects, repeated
from harness.errors import StageError
from harness.inputs import draw
from harness.outcome import Outcome
from harness.program import as_tuple
from harness.spec import Component, Sample

_OTHERS = (("unit-normal", 1), ("boundary", 0), ("large-mean", 0))
"""Draws to change an input to; the first that differs is taken."""


Sizes = tuple[tuple[str, int], ...]


def ask_module(
    module: torch.nn.Module,
    component: Component,
    sizes: Sizes,
    folder: Path,
    device: str,
) -> dict[str, object]:
    """Change each input alone, write what was asked, and return the effects.

    Raises:
        StageError: The module gives another answer when it is asked again.

    """
    run = _run_of(module, component, device)
    base, changed = _draws(component, sizes)
    outputs, found = effects(run, base, changed)
    if gap := repeated(run, base, outputs, times=1):
        msg = (
            f"{component.name} remembers: asked again with the same inputs, after "
            f"others, PyTorch's outputs differ by up to {gap:.3e}; keep no state in "
            "forward."
        )
        raise StageError(msg, outcome=Outcome.REFERENCE)
    Asked(base=base, changed=changed, outputs=outputs).save(folder)
    return {EFFECTS: _numbers(found)}


def module_effects(
    module: torch.nn.Module, component: Component, sizes: Sizes
) -> dict[str, float]:
    """Return how much each input matters to a module on the CPU."""
    base, changed = _draws(component, sizes)
    _, found = effects(_run_of(module, component, "cpu"), base, changed)
    return _numbers(found)


def _run_of(module: torch.nn.Module, component: Component, device: str) -> Run:
    module.to(device)

    def run(feeds: Arrays) -> Arrays:
        given = [torch.tensor(feeds[s.name], device=device) for s in component.inputs]
        with torch.no_grad():
            made = as_tuple(module(*given))
        return {
            spec.name: value.cpu().numpy().copy()
            for spec, value in zip(component.outputs, made, strict=True)
        }

    return run


def _draws(component: Component, sizes: Sizes) -> tuple[Arrays, Arrays]:
    def drawn(profile: str, index: int) -> Arrays:
        return draw(component, Sample(profile=profile, index=index, shapes=sizes))

    base = drawn("unit-normal", 0)
    return base, differing(base, [drawn(*other) for other in _OTHERS])


def _numbers(found: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what was not tried, and what gave no number to compare."""
    return {n: v for n, v in found.items() if v is not None and math.isfinite(v)}
