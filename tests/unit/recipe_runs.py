"""Draw a component's inputs, and run the network that its recipe builds."""

import torch

from harness.core.case import Component, Sample
from harness.recipes import recipe_module
from harness.recipes.inputs import Array, draw


def drawn(
    part: Component, shapes: dict[str, int], profile: str = "realistic", index: int = 1
) -> dict[str, Array]:
    """Return one sample of a component."""
    sizes = tuple(sorted(shapes.items()))
    return draw(part, Sample(profile=profile, index=index, shapes=sizes))


def tensors(feeds: dict[str, Array]) -> list[torch.Tensor]:
    """Return arrays as tensors of their own, for arrays that are read-only."""
    return [torch.from_numpy(array.copy()) for array in feeds.values()]


def answers(
    part: Component, feeds: dict[str, Array], attention: str = ""
) -> tuple[torch.Tensor, ...]:
    """Return the outputs of a component for some inputs."""
    module = recipe_module(part.recipe).build(part, attention)
    with torch.no_grad():
        made = module(*tensors(feeds))
    return made if isinstance(made, tuple) else (made,)


def network_of(part: Component) -> torch.nn.Module:
    """Return the network of diffusers or transformers that a component wraps."""
    network: torch.nn.Module = recipe_module(part.recipe).build(part).network
    return network
