"""Record PyTorch's own drawing: what every runtime's is held against.

The pipeline is drawn in float32, which is the reference, and twice in float64: on its
own, and from the reference's latents at every step. How far float32 is from those is
the noise floor of each step and of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.core.case import Device
from harness.core.pipeline import Pipeline
from harness.runtimes.diffusion.draw import Cast, assemble, draw
from harness.runtimes.diffusion.inputs import Inputs
from harness.runtimes.diffusion.networks import (
    Network,
    Residents,
    Tensors,
    TorchNetwork,
    fingerprint,
)
from harness.runtimes.diffusion.schedule import (
    restore,
    schedule_of,
    settings_of,
    state_of,
)

_ARRAYS = "reference.npz"
_STATES = "states.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """PyTorch's drawing, step by step.

    Attributes:
        schedule: The scheduler's arrays by name.
        settings: The scheduler's configuration.
        timesteps: Of the steps that were made.
        conditions: What the seats make before the first step, as ``seat.name``:
            ``text_encoder.embeddings [texts, tokens, width]``, a second encoder's and
            its pooled output, the autoencoder's latents of the first picture.
        predictions: The UNet's answers ``[steps, rows, channels, height, width]``;
            with guidance the rows without the prompt come first.
        seen: Fingerprints of the inputs that gave `predictions`.
        latents: After each step ``[steps, batch, channels, height, width]``.
        states: What the scheduler remembers after each step.
        pictures: ``[batch, height, width, 3]``, 0 to 255, not rounded.
        floors: Name to rms of float32's own error, one a step or picture.

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
    """A network between a seat and its own, that keeps what was answered.

    Attributes:
        network: Who answers.
        answers: Output to one a call, of those in `HEARD`.
        seen: Fingerprints of the inputs.

    """

    network: Network
    answers: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def __call__(self, feeds: Mapping[str, torch.Tensor]) -> Tensors:
        """Pass on question and answer."""
        made = self.network(feeds)
        for output in HEARD:
            # The state before the last is there where the last goes unread.
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
"""Output that is kept to what it is called."""


@dataclass(slots=True)
class Steps:
    """Keeps what a pipeline tells of its steps."""

    latents: list[torch.Tensor] = field(default_factory=list)
    timesteps: list[float] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)

    def told(
        self, step: int, timestep: float, latents: torch.Tensor, scheduler: Any
    ) -> torch.Tensor:
        """Keep a step; change nothing."""
        del step
        self.latents.append(latents.clone())
        self.timesteps.append(timestep)
        self.states.append(state_of(scheduler))
        return latents


@dataclass(slots=True)
class Forcing:
    """Puts the reference's latents in the place of a step's own, once kept.

    Attributes:
        latents: The reference's, after each step.
        states: The reference's scheduler, after each step.
        own: What each step made.

    """

    latents: np.ndarray
    states: tuple[Mapping[str, Any], ...]
    own: list[torch.Tensor] = field(default_factory=list)

    def told(
        self, step: int, timestep: float, latents: torch.Tensor, scheduler: Any
    ) -> torch.Tensor:
        """Keep what was made, and go on as the reference did."""
        del timestep
        self.own.append(latents.clone())
        restore(scheduler, self.states[step], latents.dtype)
        return torch.from_numpy(self.latents[step].copy()).to(latents.dtype)


def listening(networks: Mapping[str, Network]) -> dict[str, Any]:
    """Return the networks with a listener before each whose answer is kept."""
    unheard = ("controlnet", "vae_decoder")
    return {
        seat: network if seat in unheard else Listener(network)
        for seat, network in networks.items()
    }


def denoiser_of(networks: Mapping[str, Any]) -> Any:
    """Return the network that predicts noise."""
    seats = ("controlled_unet", "unet", "transformer")
    return next(networks[seat] for seat in seats if seat in networks)


def predictions_of(networks: Mapping[str, Any]) -> np.ndarray:
    """Return what the denoiser answered, step after step."""
    return stacked(denoiser_of(networks).answers[PREDICTION])


def conditions_of(networks: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what was heard of seats that work before the first step.

    What a second text encoder makes is numbered as it is: ``pooled_2``.
    """
    return {
        f"{seat}.{HEARD[output]}{seat.removeprefix('text_encoder')}"
        if seat.startswith("text_encoder")
        else f"{seat}.{HEARD[output]}": torch.cat(answers).numpy()
        for seat, listener in networks.items()
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
    """Return PyTorch's network for every seat."""
    return {
        seat: TorchNetwork(component, residents, device, dtype)
        for seat, component in zip(pipeline.seats, pipeline.components, strict=True)
    }


def record(
    pipeline: Pipeline,
    inputs: Inputs,
    folder: Path,
    device: Device,
    limit_gib: float | None = None,
) -> Mapping[str, object]:
    """Draw the reference and its floors, and write them to `folder`."""
    residents = Residents(limit_gib)
    networks = listening(torch_networks(pipeline, residents, device))
    cast = Cast(networks=networks, sampling=pipeline.sampling)
    pipe = assemble(pipeline, inputs, cast)
    schedule = schedule_of(pipe, pipeline)
    steps = Steps()
    pictures = draw(pipe, pipeline, inputs, on_step=steps.told)
    arrays = {
        "timesteps": np.array(steps.timesteps),
        "predictions": predictions_of(networks),
        "latents": stacked(steps.latents),
        "pictures": pictures,
    }
    conditions = conditions_of(networks)
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
    np.savez(folder / _ARRAYS, **named)
    torch.save(steps.states, folder / _STATES)
    return {"seen": denoiser_of(networks).seen, "settings": settings_of(pipe.scheduler)}


def _floors(
    pipeline: Pipeline,
    inputs: Inputs,
    device: Device,
    single: Mapping[str, np.ndarray],
    states: tuple[Mapping[str, Any], ...],
    *,
    residents: Residents,
) -> dict[str, np.ndarray]:
    """Draw in float64, free and from the reference's latents; return rms by name."""
    dtype = torch.float64
    networks = listening(torch_networks(pipeline, residents, device, dtype))
    cast = Cast(networks=networks, sampling=pipeline.sampling, dtype=dtype)
    steps = Steps()
    pictures = draw(
        assemble(pipeline, inputs, cast), pipeline, inputs, on_step=steps.told
    )
    conditions = conditions_of(networks)
    forcing = Forcing(single["latents"], states)
    draw(
        assemble(pipeline, inputs, cast),
        pipeline,
        inputs,
        on_step=forcing.told,
        decode=False,
    )
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
    """Read what `record` wrote; `meta` is what it returned."""
    with np.load(folder / _ARRAYS) as arrays:
        named = {name: arrays[name] for name in arrays.files}
    states = torch.load(folder / _STATES, weights_only=True)

    def of(prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(prefix): value
            for name, value in named.items()
            if name.startswith(prefix)
        }

    plain = {name: value for name, value in named.items() if "." not in name}
    return Reference(
        schedule=of("schedule."),
        conditions=of("conditions."),
        settings=meta["settings"],
        seen=tuple(meta["seen"]),
        states=tuple(states),
        floors=of("floors."),
        **plain,
    )


def stacked(values: list[torch.Tensor]) -> np.ndarray:
    """Return tensors of one shape as one array."""
    return torch.stack(values).numpy()


def _rms(single: np.ndarray, double: np.ndarray) -> np.ndarray:
    """Return the root mean square of the difference, for each along the first axis."""
    axes = tuple(range(1, single.ndim))
    gaps = single.astype(np.float64) - double.astype(np.float64)
    return np.sqrt(np.mean(gaps**2, axis=axes))
