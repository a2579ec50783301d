"""DiT: a transformer with an ImageNet class as condition, in place of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.case import Component, TensorSpec
from harness.recipes.checkpoint import read_config
from harness.recipes.types import Drawn, Rng, Signature, Sizes, normal

if TYPE_CHECKING:
    import numpy as np

TIMESTEPS = (999, 500, 250, 1)
"""Timesteps that realistic samples step through."""


def latents(config: Mapping[str, Any]) -> TensorSpec:
    """Return the spec of the noisy latents."""
    return normal("hidden_states", "batch", config["in_channels"], "height", "width")


def predicted(config: Mapping[str, Any]) -> TensorSpec:
    """Return the spec of the output: noise or a velocity, and a learnt variance."""
    # The value is null if the output is as wide as the input.
    channels = config.get("out_channels") or config["in_channels"]
    shape = ("batch", channels, "height", "width")
    return TensorSpec(name="out_sample", shape=shape)


def steps(batch: int, step: int) -> np.ndarray:
    """Return a timestep for each item, int32, no two the same."""
    import numpy as np

    first = TIMESTEPS[step % len(TIMESTEPS)]
    return ((first - 7 * np.arange(batch)) % 1000).astype(np.int32)


def signature(config: Mapping[str, Any]) -> Signature:
    """Return the signature: latents, timesteps and classes to ``out_sample``."""
    inputs = (
        latents(config),
        TensorSpec(name="timestep", shape=("batch",), dtype="int32", draw="timestep"),
        TensorSpec(
            name="class_labels", shape=("batch",), dtype="int32", draw="pipeline"
        ),
    )
    return inputs, (predicted(config),)


def unfit(sizes: Sizes) -> tuple[str, str]:
    """Return the invalid size, and why: DiT assembles its patches as a square."""
    height, width = sizes["height"], sizes["width"]
    if height == width:
        return "", ""
    text = (
        f"a DiT draws squares alone, got height = {height} and width = {width}; "
        "give both the same."
    )
    return "width", text


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw unit-variance latents, and classes; the last item has the "no class" id."""
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
