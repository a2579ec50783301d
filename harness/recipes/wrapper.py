"""Wrap networks that take inputs by name, and run the network of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec

if TYPE_CHECKING:
    import torch

    from harness.recipes.types import Drawn


def by_name(
    network: torch.nn.Module,
    inputs: Iterable[TensorSpec],
    answer: Callable[[Any], Any],
    arguments: Callable[[dict[str, torch.Tensor]], dict[str, Any]] = dict,
) -> torch.nn.Module:
    """Return a network behind a ``forward`` that takes its inputs by position.

    Args:
        network: The network. It takes each input by name, unless `arguments` differs.
        inputs: The inputs in order.
        answer: Picks the tensor, or the tuple of tensors, from the network's output.
        arguments: Makes the network's arguments from the named inputs.

    """
    import torch

    names = [spec.name for spec in inputs]

    class ByName(torch.nn.Module):
        """The network with tensors as inputs, by position, and tensors as outputs."""

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
    """Return a diffusers network as `by_name` does; its output is a tuple of one."""

    def plain(named: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {**arguments(named), "return_dict": False}

    def only(made: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return made[0]

    return by_name(network, inputs, only, plain)


def outputs_of(recipe: Any, name: str, source: Source, feeds: Drawn) -> Drawn:
    """Run the network that a recipe builds from a checkpoint, without options.

    `feeds` has each input by its name, and may have more. The outputs are by name too.
    """
    import torch

    inputs, outputs = recipe.signature(source, {})
    component = Component(
        name=name, recipe=name, source=source, inputs=inputs, outputs=outputs
    )
    tensors = [torch.from_numpy(feeds[spec.name]) for spec in inputs]
    with torch.no_grad():
        made = recipe.build(component)(*tensors)
    answers = made if isinstance(made, tuple) else (made,)
    return {
        spec.name: answer.numpy() for spec, answer in zip(outputs, answers, strict=True)
    }
