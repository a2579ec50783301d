"""Thin modules that replace the networks of a diffusers pipeline.

Each has the `config`, `dtype` and `forward` that the pipeline expects, and calls a
`Network` for the numbers: PyTorch's own module or a deployed file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    ControlNetModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
)
from diffusers.configuration_utils import FrozenDict

from harness.core.case import Source
from harness.plugins.pipelines.drawing.hints import residual_scales
from harness.recipes.checkpoint import read_config
from harness.recipes.diffusion.controlnet import residuals
from harness.recipes.diffusion.unet import GUIDANCE

if TYPE_CHECKING:
    from harness.plugins.pipelines.drawing.networks import Network

_CPU = torch.device("cpu")


class _Role(torch.nn.Module):
    """The attributes that a pipeline expects from each of its networks."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.device = _CPU


@dataclass(frozen=True, slots=True)
class Encoded:
    """The outputs of transformers' encoder that a pipeline reads.

    Attributes:
        outputs: Outputs by number.
        hidden_states: Hidden states of the last two layers; empty where the pipeline
            reads the network's last output.

    """

    outputs: tuple[torch.Tensor, ...]
    hidden_states: tuple[torch.Tensor, ...] = ()

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.outputs[index]


class TextRole(_Role):
    """Replaces the text encoder in `folder`."""

    def __init__(
        self,
        network: Network,
        source: Source,
        dtype: torch.dtype,
        folder: str = "text_encoder",
    ) -> None:
        super().__init__(dtype)
        self._network = network
        self.config = SimpleNamespace(**read_config(source, folder))

    def forward(self, input_ids: torch.Tensor, **unused: object) -> Encoded:
        """Return hidden states and the pooled output; a projected output comes first.

        The inner states are the last two, where the network gives them.
        """
        del unused  # attention_mask, which Stable Diffusion's encoder does not use
        made = self._network({"input_ids": input_ids})
        made = {name: value.to(self.dtype) for name, value in made.items()}
        names = ("text_embeds", "last_hidden_state", "pooler_output")
        outputs = tuple(made[name] for name in names if name in made)
        if "penultimate_hidden_state" not in made:
            return Encoded(outputs)
        inner = (made["penultimate_hidden_state"], made["last_hidden_state"])
        return Encoded(outputs, inner)


class UNetRole(_Role):
    """Replaces the UNet, with or without a ControlNet's residuals."""

    def __init__(self, network: Network, source: Source, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self._network = network
        self._source = source
        self.config = _config(UNet2DConditionModel, source, "unet")
        # Stable Diffusion XL's pipeline reads the number of sizes and crops.
        width = self.config.projection_class_embeddings_input_dim
        self.add_embedding = SimpleNamespace(
            linear_1=SimpleNamespace(in_features=width)
        )

    def forward(
        self,
        sample: torch.Tensor,
        timestep: torch.Tensor,
        *,
        encoder_hidden_states: torch.Tensor,
        down_block_additional_residuals: Sequence[torch.Tensor] | None = None,
        mid_block_additional_residual: Any = None,
        added_cond_kwargs: Mapping[str, torch.Tensor] | None = None,
        timestep_cond: torch.Tensor | None = None,
        **unused: object,
    ) -> tuple[torch.Tensor]:
        """Return the predicted noise."""
        del unused
        feeds = {
            "sample": sample,
            "timestep": timestep.reshape(1),
            "encoder_hidden_states": encoder_hidden_states,
            **(added_cond_kwargs or {}),
        }
        if timestep_cond is not None:
            feeds[GUIDANCE] = timestep_cond
        if down_block_additional_residuals is not None:
            # A pipeline gives all residuals or none.
            specs = residuals(read_config(self._source, "controlnet"))
            given = (*down_block_additional_residuals, mid_block_additional_residual)
            names = (spec.name for spec in specs)
            feeds |= dict(zip(names, given, strict=True))
        return (self._network(feeds)["out_sample"].to(self.dtype),)


class TransformerRole(_Role):
    """Replaces the transformer of Stable Diffusion 3."""

    def __init__(self, network: Network, source: Source, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self._network = network
        self.config = _config(SD3Transformer2DModel, source, "transformer")

    def forward(self, hidden_states: torch.Tensor, **given: Any) -> tuple[torch.Tensor]:
        """Return the predicted velocity."""
        names = ("timestep", "encoder_hidden_states", "pooled_projections")
        feeds = {name: given[name] for name in names}
        made = self._network({"hidden_states": hidden_states, **feeds})
        return (made["out_sample"].to(self.dtype),)


class ControlNetRole(ControlNetModel):
    """Replaces the ControlNet; scales the residuals, which are exported unscaled.

    diffusers requires an instance of its own class. Its guess mode falls off as
    ``10 ** (i / 12 - 1)``; here guess mode falls off as in the classic app.
    """

    def __init__(self, network: Network, source: Source, dtype: torch.dtype) -> None:
        torch.nn.Module.__init__(self)  # and none of the parent's layers
        self._network = network
        self._dtype = dtype
        self._internal_dict = _config(ControlNetModel, source, "controlnet")

    dtype = property(lambda self: self._dtype)
    device = property(lambda self: _CPU)  # noqa: ARG005  # a property's signature

    def forward(
        self,
        sample: torch.Tensor,
        timestep: torch.Tensor,
        *,
        encoder_hidden_states: torch.Tensor,
        controlnet_cond: torch.Tensor,
        conditioning_scale: float = 1.0,
        guess_mode: bool = False,
        **unused: object,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the scaled residuals of the down blocks, and that of the middle."""
        del unused
        made = self._network(
            {
                "sample": sample,
                "timestep": timestep.reshape(1),
                "encoder_hidden_states": encoder_hidden_states,
                "controlnet_cond": controlnet_cond,
            }
        )
        names = [spec.name for spec in residuals(self._internal_dict)]
        scales = residual_scales(conditioning_scale, len(names), guess_mode=guess_mode)
        scaled = [
            made[name].to(self._dtype) * scale
            for name, scale in zip(names, scales, strict=True)
        ]
        return scaled[:-1], scaled[-1]


class VaeRole(_Role):
    """Replaces the autoencoder: an encoder that never samples, and a decoder.

    `encoder` is None where no picture is encoded. `factors` has the factors by which
    roles scale latents, where those are not the configuration's. With `tiling` it
    decodes tiles, which diffusers cuts and blends.
    """

    def __init__(
        self,
        encoder: Network | None,
        decoder: Network,
        source: Source,
        dtype: torch.dtype,
        factors: Mapping[str, float],
        *,
        tiling: bool = False,
    ) -> None:
        super().__init__(dtype)
        self._encoder = encoder
        self._decoder = decoder
        self._factors = factors
        self.config = _config(AutoencoderKL, source, "vae")
        self._tiles = _tiles(self._decoded, self.config) if tiling else None

    def encode(self, picture: torch.Tensor) -> SimpleNamespace:
        """Return the mode of the latents, which the pipeline scales."""
        assert self._encoder is not None  # noqa: S101  # only image to image encodes
        mode = self._encoder({"sample": picture})["latent_sample"].to(self.dtype)
        return SimpleNamespace(latents=mode * self._factor("vae_encoder"))

    def decode(self, latents: torch.Tensor, **unused: object) -> tuple[torch.Tensor]:
        """Return the picture of latents that the pipeline has scaled back."""
        del unused
        shift = self.config.shift_factor or 0.0
        latents = (latents - shift) / self._factor("vae_decoder") + shift
        if self._tiles is not None:
            return (self._tiles.decode(latents, return_dict=False)[0],)
        return (self._decoded(latents),)

    def _decoded(self, latents: torch.Tensor) -> torch.Tensor:
        return self._decoder({"latent_sample": latents})["sample"].to(self.dtype)

    def _factor(self, role: str) -> float:
        """Return the role's own factor divided by the configuration's."""
        configured = float(self.config.scaling_factor)
        return self._factors.get(role, configured) / configured


class _Tile(torch.nn.Module):
    """Replaces the decoder inside diffusers' autoencoder."""

    def __init__(self, decoded: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.forward = decoded


def _tiles(
    decoded: Callable[[torch.Tensor], torch.Tensor], config: FrozenDict
) -> AutoencoderKL:
    """Return diffusers' tiling autoencoder, without weights, which calls `decoded`.

    A component's decoder contains the convolution before diffusers' decoder.
    """
    with torch.device("meta"):
        autoencoder = AutoencoderKL.from_config(config)
    autoencoder.post_quant_conv = torch.nn.Identity()
    autoencoder.decoder = _Tile(decoded)
    autoencoder.enable_tiling()
    return autoencoder


class StoredTokens:
    """Replaces the tokenizer: returns stored ids, the same for every runtime."""

    added_tokens_encoder: Mapping[str, int] = {}

    def __init__(self, ids: Mapping[str, np.ndarray]) -> None:
        self._ids = ids
        self.model_max_length = len(next(iter(ids.values())))

    def tokenize(self, text: str) -> list[str]:
        """Return no words, so that textual inversion finds none of its own."""
        del text
        return []

    def __call__(self, texts: str | Sequence[str], **unused: object) -> SimpleNamespace:
        """Return ``input_ids [batch, tokens]`` of texts, padded as they were stored."""
        del unused
        listed = [texts] if isinstance(texts, str) else texts
        ids = np.stack([self._ids[text] for text in listed])
        return SimpleNamespace(input_ids=torch.from_numpy(ids))


def _config(cls: type, source: Source, folder: str) -> FrozenDict:
    """Return a network's configuration, with its class's defaults filled in."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return FrozenDict({**defaults, **read_config(source, folder)})
