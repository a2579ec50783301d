"""A recipe whose module has a fault: the option `fault` names it, `recipe` whose it is.

What is exported from it is real; `attention` is set for the exported copy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from harness.core.case import Component, TensorSpec
from harness.recipes import recipe_module

if TYPE_CHECKING:
    import numpy as np


class Faulty(torch.nn.Module):
    """Does something before and after the right module."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.network(*inputs)


class Sampling(Faulty):
    def forward(self, *inputs: torch.Tensor) -> Any:
        made = self.network(*inputs)
        return made + 0.1 * torch.randn_like(made)


class InPlace(Faulty):
    def forward(self, *inputs: torch.Tensor) -> Any:
        inputs[0].mul_(0.5)
        return self.network(*inputs)


class Remembering(Faulty):
    calls = 0

    def forward(self, *inputs: torch.Tensor) -> Any:
        self.calls += 1
        return self.network(*inputs) * (1.0 + 0.001 * self.calls)


class Streaming(Faulty):
    """Adds what it made of the inputs before these, which a buffer keeps."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__(network)
        self.register_buffer("last", torch.zeros(()))

    def forward(self, *inputs: torch.Tensor) -> Any:
        made = self.network(*inputs)
        out = made + self.last
        self.last.copy_(made.mean())
        return out


class OtherForOne(Faulty):
    """Takes another way for a batch of one, which exporting does not see."""

    def forward(self, *inputs: torch.Tensor) -> Any:
        made = self.network(*inputs)
        return made if inputs[0].shape[0] > 1 else made * 1.01


def _in_train_mode(module: torch.nn.Module, _: str) -> torch.nn.Module:
    return module.train()


def _rewritten(module: torch.nn.Module, attention: str) -> torch.nn.Module:
    """Spoil the copy that is exported, and not the reference."""
    if attention:
        with torch.no_grad():
            next(
                p for n, p in module.named_parameters() if "out_proj.weight" in n
            ).mul_(1.01)
    return module


def _wrapped(kind: type[Faulty]) -> Callable[[torch.nn.Module, str], torch.nn.Module]:
    return lambda module, _: kind(module).eval()


CHANGES: Mapping[str, Callable[[torch.nn.Module, str], torch.nn.Module]] = {
    "train-mode": _in_train_mode,
    "sampling-in-the-module": _wrapped(Sampling),
    "in-place-change": _wrapped(InPlace),
    "remembers-calls": _wrapped(Remembering),
    "keeps-a-buffer": _wrapped(Streaming),
    "branch-on-batch-size": _wrapped(OtherForOne),
    "rewrite-for-export-wrong": _rewritten,
}


def build(component: Component, *, attention: str = "") -> torch.nn.Module:
    options = dict(component.options)
    base = recipe_module(str(options["recipe"]))
    return CHANGES[str(options["fault"])](
        base.build(component, attention=attention), attention
    )


def signature(*arguments: Any) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    raise NotImplementedError  # the component comes with its own


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    index: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    base = recipe_module(str(dict(component.options)["recipe"]))
    return base.realistic(component, shapes, index, rng)
