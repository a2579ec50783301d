"""The UNet as a ControlNet drives it: its residuals are inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.components import controlnet, unet
from harness.components.checkpoint import load_network, option, read_config
from harness.spec import Component, Source, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch


multiples = unet.multiples


def signature(
    source: Source, options: Mapping[str, str | int | bool]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """UNet inputs and every ControlNet residual to ``out_sample``."""
    option(options, ())
    inputs, outputs = unet.signature(source, {})
    steering = controlnet.residuals(read_config(source, "controlnet"))
    return (*inputs, *steering), outputs


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the UNet behind ``forward(sample, timestep, states, *residuals)``."""
    import torch

    del attention

    class ControlledUNet(torch.nn.Module):
        """Tensors in, the predicted noise out."""

        def __init__(self, network: torch.nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(
            self,
            sample: torch.Tensor,
            timestep: torch.Tensor,
            encoder_hidden_states: torch.Tensor,
            *residuals: torch.Tensor,
        ) -> torch.Tensor:
            out: torch.Tensor = self.network(
                sample,
                timestep,
                encoder_hidden_states,
                down_block_additional_residuals=residuals[:-1],
                mid_block_additional_residual=residuals[-1],
                return_dict=False,
            )[0]
            return out

    network = load_network(component.source, "unet", unet.network)
    return ControlledUNet(network).eval()


def realistic(
    component: Component,
    shapes: Mapping[str, int],
    step: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Inputs of the UNet, and what the ControlNet answers to them."""
    import torch

    inputs, outputs = controlnet.signature(component.source, {})
    steering = Component(
        name="controlnet",
        recipe="controlnet",
        source=component.source,
        inputs=inputs,
        outputs=outputs,
    )
    drawn = controlnet.realistic(steering, shapes, step, rng)
    with torch.no_grad():
        answers = controlnet.build(steering)(
            *(torch.from_numpy(drawn[spec.name]) for spec in inputs)
        )
    del drawn["controlnet_cond"]
    for spec, answer in zip(outputs, answers, strict=True):
        drawn[spec.name] = answer.numpy()
    return drawn
