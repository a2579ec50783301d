"""DiT: a transformer conditioned on a class of ImageNet instead of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.checkpoint import load_network, read_config
from harness.recipes.wrapper import first

if TYPE_CHECKING:
    import numpy as np
    import torch

TIMESTEPS = (999, 500, 250, 1)
"""Those that realistic samples step through."""


def latents(config: Mapping[str, Any]) -> TensorSpec:
    """Return the spec of the noisy latents."""
    shape = ("batch", config["in_channels"], "height", "width")
    return TensorSpec(name="hidden_states", shape=shape, draw="normal")


def predicted(config: Mapping[str, Any]) -> TensorSpec:
    """Return the spec of the output: noise, and its variance where that is learnt."""
    channels = config.get("out_channels") or config["in_channels"]
    shape = ("batch", channels, "height", "width")
    return TensorSpec(name="out_sample", shape=shape)


def steps(batch: int, step: int) -> np.ndarray:
    """Return a timestep an item, int32, no two the same."""
    import numpy as np

    first = TIMESTEPS[step % len(TIMESTEPS)]
    return ((first - 7 * np.arange(batch)) % 1000).astype(np.int32)


def signature(
    config: Mapping[str, Any],
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Latents, a timestep and a class an item to ``out_sample``."""
    inputs = (
        latents(config),
        TensorSpec(name="timestep", shape=("batch",), dtype="int32", draw="timestep"),
        TensorSpec(
            name="class_labels", shape=("batch",), dtype="int32", draw="pipeline"
        ),
    )
    return inputs, (predicted(config),)


def unfit(sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return the size that is wrong, and why: it puts patches together as a square."""
    height, width = sizes["height"], sizes["width"]
    if height == width:
        return "", ""
    text = (
        f"a DiT draws squares alone, got height = {height} and width = {width}; "
        "give both the same."
    )
    return "width", text


def network() -> Any:
    """Return the class, imported late."""
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel


def build(source: Source) -> torch.nn.Module:
    """Return the network behind ``forward(hidden_states, timestep, class_labels)``."""
    inputs, _ = signature(read_config(source, "transformer"))
    return first(load_network(source, "transformer", network), inputs)


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Unit-variance latents, and classes; the last item has the class of no class."""
    import numpy as np

    config = read_config(component.source, "transformer")
    batch = shapes["batch"]
    classes = config.get("num_embeds_ada_norm") or 1000
    labels = (rng.integers(0, classes) + np.arange(batch)) % classes
    if batch > 1:  # classifier-free guidance
        labels[-1] = classes
    shape = component.inputs[0].bind(shapes)
    return {
        "hidden_states": rng.standard_normal(shape, dtype=np.float32),
        "timestep": steps(batch, step),
        "class_labels": labels.astype(np.int32),
    }
