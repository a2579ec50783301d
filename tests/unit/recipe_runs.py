"""Draw a component's inputs, and run the network that its recipe builds."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from harness.core.case import Component, Sample, Source
from harness.recipes import recipe_module
from harness.recipes.inputs import Array, draw


def changed(home: Path, root: Path, folder: str, **values: object) -> Source:
    """Return a checkpoint like that in `root`, but for values of one configuration."""
    for path in root.iterdir():
        if path.name != folder:
            (home / path.name).symlink_to(path)
    config = json.loads((root / folder / "config.json").read_text())
    (home / folder).mkdir()
    (home / folder / "config.json").write_text(json.dumps(config | values))
    return Source(path=home, seed=0)


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
    with torch.no_grad():
        made = _built(part, attention)(*tensors(feeds))
    return made if isinstance(made, tuple) else (made,)


@lru_cache(maxsize=8)
def _built(part: Component, attention: str) -> torch.nn.Module:
    """Return a network, which neighbouring tests share; no path's files change."""
    return recipe_module(part.recipe).build(part, attention)


def check_signature(
    part: Component, outputs: Sequence[torch.Tensor], shapes: Mapping[str, int]
) -> None:
    """Check that outputs are finite, and have a component's shapes and dtypes."""
    for spec, value in zip(part.outputs, outputs, strict=True):
        made = tuple(value.shape), str(value.dtype)
        assert made == (spec.bind(shapes), f"torch.{spec.dtype}"), (spec, made)
        assert value.isfinite().all(), spec


def network_of(part: Component) -> torch.nn.Module:
    """Return the network of diffusers or transformers that a component wraps."""
    network: torch.nn.Module = recipe_module(part.recipe).build(part).network
    return network
