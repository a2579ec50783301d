"""What several weights of a graph show together: a dropped operator, or a LoRA.

Each is said only where it explains every weight that is not PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.core.probes import Probe
from harness.core.text import count
from harness.runtimes.pytorch.program import own_path

if TYPE_CHECKING:
    import torch
    from torch import nn

_LEFT = 0.01
"""Largest part of a LoRA's change of a weight that may be left unexplained."""

_ALIKE = 1e-3
"""Largest relative difference between the scales of a LoRA's weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """A LoRA that PyTorch's module has in its weights.

    Attributes:
        name: Name of its file.
        scale: Factor with which it was added.
        without: Function that builds the module without it.

    """

    name: str
    scale: float
    without: Callable[[], nn.Module]


def dropped(
    found: Mapping[str, bool], probes: Sequence[Probe], *, exact: bool
) -> list[str]:
    """Return modules that the graph lacks, though all other weights are PyTorch's.

    Args:
        found: Each weight, and whether the graph holds it as PyTorch has it.
        probes: The program's values, and which of them the graph has.
        exact: Whether the graph holds all of its tensors in full precision.

    """
    by_module: dict[str, list[bool]] = {}
    for name, held in found.items():
        by_module.setdefault(name.rpartition(".")[0], []).append(held)
    lacking = [module for module, held in by_module.items() if not any(held)]
    partly = any(any(held) and not all(held) for held in by_module.values())
    if not exact or partly or not 0 < len(lacking) < len(by_module):
        return []
    of = {module: [p for p in probes if p.module == module] for module in lacking}
    ran = all(values and not any(p.onnx for p in values) for values in of.values())
    return lacking if ran else []


def lora_words(
    lora: Lora,
    module: nn.Module,
    held: Mapping[str, Sequence[np.ndarray]],
) -> str:
    """Return how the weights that differ are those of another LoRA's scale, or "".

    `held` are the weights that differ, by their names in the checkpoint: the graph's
    numbers in each layout that they may have.
    """
    before = {own_path(name): p for name, p in lora.without().named_parameters()}
    changes = {
        name: (base, with_it - base)
        for name, with_it, base in _both(module, before)
        if not np.array_equal(with_it, base)
    }
    if not changes or not held or not held.keys() <= changes.keys():
        return ""
    shares = [_share(*changes[name], sides) for name, sides in held.items()]
    if any(share is None for share in shares):
        return ""
    known = [share for share in shares if share is not None]
    if max(known) - min(known) > _ALIKE * max(1.0, *map(abs, known)):
        return ""
    share = float(np.mean(known))
    number, all_of = count(len(held), "weight"), len(changes)
    which = f"the {number} that differ are all that the LoRA {lora.name} changes"
    if len(held) < all_of:
        which = (
            f"the {number} that differ are of the {all_of:,} that the LoRA "
            f"{lora.name} changes"
        )
    if abs(share) <= _ALIKE:
        return f"{which}, and the graph has them without it"
    return (
        f"{which}, and the graph has it at a scale of {share * lora.scale:.4g}, not "
        f"{lora.scale:.4g}"
    )


def _both(
    module: nn.Module, before: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name, parameter in module.named_parameters():
        base = before.get(own_path(name))
        if base is not None and base.shape == parameter.shape:
            one, two = (p.detach().cpu().numpy().squeeze() for p in (parameter, base))
            yield own_path(name), one.astype(np.float64), two.astype(np.float64)


def _share(
    base: np.ndarray, change: np.ndarray, sides: Sequence[np.ndarray]
) -> float | None:
    """Return which part of a change a weight has; None if that does not explain it."""
    for side in sides:
        if side.shape != base.shape:
            continue
        over = side - base
        share = float(np.sum(over * change) / np.sum(change * change))
        if np.linalg.norm(over - share * change) <= _LEFT * np.linalg.norm(change):
            return share
    return None
