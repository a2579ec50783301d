"""UNet: one denoising step of Stable Diffusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.components.checkpoint import (
    load_network,
    load_scheduler,
    option,
    read_config,
)
from harness.components.clip_text import prompt_states
from harness.spec import Component, Source, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch


def conditioned_inputs(source: Source, config: Mapping[str, Any]) -> list[TensorSpec]:
    """Return the inputs that a UNet and a ControlNet share."""
    tokens = read_config(source, "text_encoder")["max_position_embeddings"]
    return [
        TensorSpec(
            name="sample",
            shape=("batch", config["in_channels"], "height", "width"),
            draw="normal",
        ),
        TensorSpec(name="timestep", shape=(1,), dtype="int32", draw="timestep"),
        TensorSpec(
            name="encoder_hidden_states",
            shape=("batch", tokens, config["cross_attention_dim"]),
            draw="normal",
        ),
    ]


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """``sample``, ``timestep``, ``encoder_hidden_states`` to ``out_sample``."""
    option(options, ())
    config = read_config(source, "unet")
    out = ("batch", config["out_channels"], "height", "width")
    return (
        tuple(conditioned_inputs(source, config)),
        (TensorSpec(name="out_sample", shape=out),),
    )


def multiples(
    source: Source, options: Mapping[str, str | int | bool]
) -> dict[str, int]:
    """Return how often each side is halved: an open one must come out even."""
    del options
    return halvings(read_config(source, "unet"))


def halvings(config: Mapping[str, Any]) -> dict[str, int]:
    """Return what a network that halves after each block but the last can take."""
    times: int = 2 ** (len(config["block_out_channels"]) - 1)
    return {"height": times, "width": times}


def network() -> Any:
    """Return the class, imported late."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the UNet behind ``forward(sample, timestep, encoder_hidden_states)``."""
    import torch

    del attention  # diffusers decides by processor; its default exports as it is

    class UNet(torch.nn.Module):
        """Tensors in, the predicted noise out."""

        def __init__(self, unet: torch.nn.Module) -> None:
            super().__init__()
            self.network = unet

        def forward(
            self,
            sample: torch.Tensor,
            timestep: torch.Tensor,
            encoder_hidden_states: torch.Tensor,
        ) -> torch.Tensor:
            out: torch.Tensor = self.network(
                sample, timestep, encoder_hidden_states, return_dict=False
            )[0]
            return out

    return UNet(load_network(component.source, "unet", network)).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Noisy latents as the scheduler makes them, and a prompt's hidden states."""
    return denoising_inputs(component, shapes, step, rng)


def denoising_inputs(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Draw the first three inputs of a UNet or ControlNet.

    Latents have the scale that the checkpoint's scheduler gives them at that
    timestep; `step` goes through the timesteps 0, 1, the middle one and the last.
    """
    import numpy as np
    import torch

    latents = component.inputs[0].bind(shapes)
    scheduler = load_scheduler(component.source)
    last = scheduler.config.num_train_timesteps - 1
    timestep = (0, 1, last // 2, last)[step % 4]
    clean, noise = (
        torch.from_numpy(rng.standard_normal(latents, dtype=np.float32))
        for _ in range(2)
    )
    noisy = scheduler.add_noise(clean, noise, torch.tensor([timestep]))
    return {
        "sample": noisy.numpy(),
        "timestep": np.array([timestep], dtype=np.int32),
        "encoder_hidden_states": prompt_states(
            component.source, shapes["batch"], step, rng
        ),
    }
