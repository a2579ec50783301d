"""The wrapper of networks that take their inputs by name: tensors in, tensors out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from harness.core.case import TensorSpec

if TYPE_CHECKING:
    import torch


def by_name(
    network: torch.nn.Module,
    inputs: Iterable[TensorSpec],
    answer: Callable[[Any], Any],
    arguments: Callable[[dict[str, torch.Tensor]], dict[str, Any]] = dict,
) -> torch.nn.Module:
    """Return a network behind a ``forward`` of its inputs, by position.

    Args:
        network: Takes each input under its own name, unless `arguments` differs.
        inputs: In order.
        answer: Picks the tensor, or the tuple of them, from what the network returns.
        arguments: Makes what the network is called with from the named inputs.

    """
    import torch

    names = [spec.name for spec in inputs]

    class ByName(torch.nn.Module):
        """Tensors in, by position; tensors out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: torch.Tensor) -> Any:
            named = dict(zip(names, tensors, strict=True))
            return answer(self.network(**arguments(named)))

    return ByName().eval()


def first(
    network: torch.nn.Module,
    inputs: Iterable[TensorSpec],
    arguments: Callable[[dict[str, torch.Tensor]], dict[str, Any]] = dict,
) -> torch.nn.Module:
    """Return a network of diffusers' as `by_name` does, its answer a tuple of one."""

    def plain(named: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {**arguments(named), "return_dict": False}

    def only(made: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return made[0]

    return by_name(network, inputs, only, plain)
