"""Record PyTorch's own pictures, with which every runtime's pictures are compared.

The pipeline runs in float32, which is the reference, and twice in float64: once freely,
and once from the reference's latents at every step. The distance of float32 from these
runs is the noise floor of each step and of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.core.case import Device
from harness.core.errors import StoreError
from harness.core.received import DamagedError
from harness.measure.received_arrays import Arrays
from harness.plugins.pipelines.case import Pipeline
from harness.plugins.pipelines.drawing.draw import PipelineParts, assemble, draw
from harness.plugins.pipelines.drawing.inputs import PipelineInputs
from harness.plugins.pipelines.drawing.networks import (
    Network,
    Residents,
    Tensors,
    TorchNetwork,
    fingerprint,
)
from harness.plugins.pipelines.drawing.schedule import (
    restore,
    schedule_of,
    settings_of,
    state_of,
)
from harness.plugins.pipelines.drawing.states import load_states, save_states
from harness.runtimes.pytorch.program import in_float32

_ARRAYS = "reference.npz"
_PLAIN = ("timesteps", "predictions", "latents", "pictures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """PyTorch's run of a pipeline, step by step.

    Attributes:
        schedule: The scheduler's arrays by name.
        settings: The scheduler's configuration.
        timesteps: Timesteps of the steps that were made.
        conditions: Outputs of the roles before the first step, as ``role.name``:
            ``text_encoder.embeddings [texts, tokens, width]``, a second encoder's and
            its pooled output, the autoencoder's latents of the first picture.
        predictions: The UNet's outputs ``[steps, rows, channels, height, width]``;
            with guidance the rows without the prompt come first.
        seen: Fingerprints of the inputs that gave `predictions`.
        latents: Latents after each step ``[steps, batch, channels, height, width]``.
        states: The scheduler's memory after each step.
        pictures: Pictures ``[batch, height, width, 3]``, 0 to 255, not rounded.
        floors: Name to rms of float32's own error, one for each step or picture.

    """

    schedule: Mapping[str, np.ndarray]
    settings: Mapping[str, Any]
    timesteps: np.ndarray
    conditions: Mapping[str, np.ndarray]
    predictions: np.ndarray
    seen: tuple[str, ...]
    latents: np.ndarray
    states: tuple[Mapping[str, Any], ...]
    pictures: np.ndarray
    floors: Mapping[str, np.ndarray]


@dataclass(slots=True)
class Listener:
    """A network between a role and its real network, which keeps the outputs.

    Attributes:
        network: The real network.
        answers: Name of each output in `HEARD`, to its tensors, one for each call.
        seen: Fingerprints of the inputs.

    """

    network: Network
    answers: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def __call__(self, feeds: Mapping[str, torch.Tensor]) -> Tensors:
        """Pass on inputs and outputs."""
        made = self.network(feeds)
        for output in HEARD:
            # A network gives the state before the last where the last is not read.
            unread = output == LAST and PENULTIMATE in made
            if output in made and not unread:
                self.answers.setdefault(output, []).append(made[output].clone())
        self.seen.append(fingerprint(feeds))
        return made


LAST, PENULTIMATE = "last_hidden_state", "penultimate_hidden_state"
PREDICTION = "out_sample"
HEARD = {
    LAST: "embeddings",
    PENULTIMATE: "embeddings",
    "text_embeds": "pooled",
    "latent_sample": "begun",
    PREDICTION: "predictions",
}
"""Name of each output that is kept, to its name among the conditions."""


@dataclass(slots=True)
class Steps:
    """Keeps the timesteps, latents and scheduler states of a pipeline's steps."""

    latents: list[torch.Tensor] = field(default_factory=list)
    timesteps: list[float] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)

    def told(
        self, step: int, timestep: float, latents: torch.Tensor, scheduler: Any
    ) -> torch.Tensor:
        """Keep a step, and return its latents unchanged."""
        del step
        self.latents.append(latents.clone())
        self.timesteps.append(timestep)
        self.states.append(state_of(scheduler))
        return latents


@dataclass(slots=True)
class Forcing:
    """Keeps each step's latents, and replaces them by the reference's.

    Attributes:
        latents: The reference's latents after each step.
        states: The state of the reference's scheduler after each step.
        own: The latents that each step made.

    """

    latents: np.ndarray
    states: tuple[Mapping[str, Any], ...]
    own: list[torch.Tensor] = field(default_factory=list)

    def told(
        self, step: int, timestep: float, latents: torch.Tensor, scheduler: Any
    ) -> torch.Tensor:
        """Keep a step's latents, and return the reference's."""
        del timestep
        self.own.append(latents.clone())
        restore(scheduler, self.states[step], latents.dtype)
        return torch.from_numpy(self.latents[step].copy()).to(latents.dtype)


def listening(networks: Mapping[str, Network]) -> dict[str, Any]:
    """Return the networks, with a listener before each whose outputs are kept."""
    unheard = ("controlnet", "vae_decoder")
    return {
        role: network if role in unheard else Listener(network)
        for role, network in networks.items()
    }


def denoiser_of(networks: Mapping[str, Any]) -> Any:
    """Return the network that predicts noise."""
    roles = ("controlled_unet", "unet", "transformer")
    return next(networks[role] for role in roles if role in networks)


def predictions_of(networks: Mapping[str, Any]) -> np.ndarray:
    """Return the denoiser's outputs, step after step."""
    return stacked(denoiser_of(networks).answers[PREDICTION])


def conditions_of(networks: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the kept outputs of roles that run before the first step.

    Outputs of a second text encoder have its number: ``pooled_2``.
    """
    return {
        f"{role}.{HEARD[output]}{role.removeprefix('text_encoder')}"
        if role.startswith("text_encoder")
        else f"{role}.{HEARD[output]}": torch.cat(answers).numpy()
        for role, listener in networks.items()
        if isinstance(listener, Listener)
        for output, answers in listener.answers.items()
        if output != PREDICTION
    }


def torch_networks(
    pipeline: Pipeline,
    residents: Residents,
    device: Device,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Network]:
    """Return PyTorch's network for every role."""
    return {
        role: TorchNetwork(component, residents, device, dtype)
        for role, component in zip(pipeline.roles, pipeline.components, strict=True)
    }


def self_networks(
    pipeline: Pipeline, residents: Residents, device: Device, dtype: str
) -> dict[str, Network]:
    """Return PyTorch's networks in `dtype`, for a pipeline with float32 latents."""

    def wide(network: Network) -> Network:
        def run(feeds: Mapping[str, torch.Tensor]) -> Tensors:
            return {name: in_float32(value) for name, value in network(feeds).items()}

        return run

    low = torch_networks(pipeline, residents, device, getattr(torch, dtype))
    return {role: wide(network) for role, network in low.items()}


def record(
    pipeline: Pipeline,
    inputs: PipelineInputs,
    folder: Path,
    device: Device,
    limit_gib: float | None = None,
) -> Mapping[str, object]:
    """Run the reference, measure its floors, and write both to `folder`."""
    residents = Residents(limit_gib)
    networks, pipe, steps, pictures = _run(pipeline, inputs, device, residents)
    arrays = {
        "timesteps": np.array(steps.timesteps),
        "predictions": predictions_of(networks),
        "latents": stacked(steps.latents),
        "pictures": pictures,
    }
    conditions = conditions_of(networks)
    schedule = schedule_of(pipe, pipeline)
    residents.close()
    states = tuple(steps.states)
    single = {**arrays, **conditions}
    floors = _floors(pipeline, inputs, device, single, states, residents=residents)
    named: dict[str, Any] = {
        **arrays,
        **{f"conditions.{name}": value for name, value in conditions.items()},
        **{f"schedule.{name}": value for name, value in schedule.items()},
        **{f"floors.{name}": value for name, value in floors.items()},
    }
    save_states(steps.states, named, folder)
    np.savez(folder / _ARRAYS, allow_pickle=False, **named)
    return {"seen": denoiser_of(networks).seen, "settings": settings_of(pipe.scheduler)}


def _run(
    pipeline: Pipeline,
    inputs: PipelineInputs,
    device: Device,
    residents: Residents,
    dtype: torch.dtype = torch.float32,
) -> tuple[dict[str, Any], Any, Steps, np.ndarray]:
    """Run freely; return the networks, the pipeline, its steps and its pictures."""
    networks = listening(torch_networks(pipeline, residents, device, dtype))
    parts = PipelineParts(networks=networks, sampling=pipeline.sampling, dtype=dtype)
    pipe, steps = assemble(pipeline, inputs, parts), Steps()
    pictures = draw(pipe, pipeline, inputs, on_step=steps.told)
    return networks, pipe, steps, pictures


def _floors(
    pipeline: Pipeline,
    inputs: PipelineInputs,
    device: Device,
    single: Mapping[str, np.ndarray],
    states: tuple[Mapping[str, Any], ...],
    *,
    residents: Residents,
) -> dict[str, np.ndarray]:
    """Run in float64, freely and from the reference's latents; return rms by name."""
    networks, pipe, steps, pictures = _run(
        pipeline, inputs, device, residents, torch.float64
    )
    conditions = conditions_of(networks)
    forcing = Forcing(single["latents"], states)
    draw(pipe, pipeline, inputs, on_step=forcing.told, decode=False)
    residents.close()
    return {
        **{
            name: _rms(single[name][None], double[None])
            for name, double in conditions.items()
        },
        "free-running": _rms(single["latents"], stacked(steps.latents)),
        "teacher-forced": _rms(single["latents"], stacked(forcing.own)),
        "pictures": _rms(single["pictures"], pictures),
    }


def load_reference(folder: Path, meta: Mapping[str, Any]) -> Reference:
    """Read the files that `record` wrote; `meta` is the mapping that it returned.

    Raises:
        StoreError: A file is damaged.

    """
    try:
        with Arrays(folder / _ARRAYS) as arrays:
            named = dict(arrays)
        states = load_states(named, folder)
        plain = {name: named[name] for name in _PLAIN}
    except (OSError, DamagedError, KeyError) as error:
        msg = f"{folder} holds no readable drawing: {error}. Run `parity store verify`."
        raise StoreError(msg) from error

    def of(prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(prefix): value
            for name, value in named.items()
            if name.startswith(prefix)
        }

    return Reference(
        schedule=of("schedule."),
        conditions=of("conditions."),
        settings=meta["settings"],
        seen=tuple(meta["seen"]),
        states=states,
        floors=of("floors."),
        **plain,
    )


def stacked(values: list[torch.Tensor]) -> np.ndarray:
    """Return tensors of one shape as one array."""
    return torch.stack(values).numpy()


def _rms(single: np.ndarray, double: np.ndarray) -> np.ndarray:
    """Return the difference's root mean square for each index of the first axis."""
    axes = tuple(range(1, single.ndim))
    gaps = single.astype(np.float64) - double.astype(np.float64)
    return np.sqrt(np.mean(gaps**2, axis=axes))
