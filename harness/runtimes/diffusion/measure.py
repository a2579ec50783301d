"""Draw with deployed files in the seats, and hold every step against PyTorch's.

Runs in a child process; numbers and small pictures come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from harness.core.app import other_settings, tried, without
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.pipeline import DENOISING, IMAGE, LATENTS, Pipeline
from harness.core.record import Row
from harness.measure.attribution import attribute
from harness.measure.compare import compare
from harness.measure.pictures import compare_pictures, png, side_by_side
from harness.runtimes.diffusion.draw import app_cast, assemble, draw
from harness.runtimes.diffusion.inputs import Inputs
from harness.runtimes.diffusion.networks import Network, Remembered
from harness.runtimes.diffusion.readers import Reader, read_picture, reader_of
from harness.runtimes.diffusion.reference import (
    PREDICTION,
    Forcing,
    Reference,
    Steps,
    conditions_of,
    denoiser_of,
    listening,
    predictions_of,
)
from harness.runtimes.diffusion.schedule import (
    config_gap,
    schedule_gap,
    schedule_of,
    settings_of,
)

EXCHANGED = 0.1
"""Below this share of the error, exchanging the halves of the batch explains it."""

_SHOWN = 8
"""Pictures that are kept of a case."""

_VAE = ("vae_encoder", "vae_decoder")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an end-to-end case left.

    Attributes:
        rows: Comparisons of latents and pictures.
        about: How errors grow, what guidance does to them, who brought them.
        pictures: File name to PNG: reference, candidate and difference, side by side.

    """

    rows: tuple[Row, ...]
    about: Mapping[str, Any]
    pictures: Mapping[str, bytes]


class _Bench:
    """One case's pipeline, and everybody who may sit in its seats."""

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: Inputs,
        candidates: Mapping[str, Network],
        torch_networks: Mapping[str, Network],
    ) -> None:
        self.pipeline = pipeline
        self.inputs = inputs
        self.seats = [seat for seat in pipeline.seats if seat in candidates]
        self.candidates = {seat: Remembered(candidates[seat]) for seat in self.seats}
        self.references = {
            seat: Remembered(network) for seat, network in torch_networks.items()
        }

    def networks(self, taken: Sequence[str] | frozenset[str]) -> dict[str, Network]:
        """Return a network for every seat: the candidate's in those `taken`."""
        return {
            seat: self.candidates[seat] if seat in taken else self.references[seat]
            for seat in self.pipeline.seats
        }

    def pipe(self, networks: Mapping[str, Network], *, factors: Sequence[str]) -> Any:
        """Return diffusers' pipeline as the app runs it."""
        cast = app_cast(self.pipeline, networks, factors)
        return assemble(self.pipeline, self.inputs, cast)

    def vae(self, taken: Sequence[str] | frozenset[str]) -> list[str]:
        """Return the autoencoder's seats that the candidate takes."""
        return [seat for seat in _VAE if seat in taken]


def measure(
    *,
    case: str,
    pipeline: Pipeline,
    inputs: Inputs,
    reference: Reference,
    candidates: Mapping[str, Network],
    torch_networks: Mapping[str, Network],
    say: Say = lambda _: None,
) -> Measured:
    """Draw free-running and teacher-forced, compare, and find who is to blame.

    Args:
        case: Begins every message.
        pipeline: What is drawn.
        inputs: As the reference had them.
        reference: PyTorch's drawing.
        candidates: Seat to who takes it; PyTorch has the others.
        torch_networks: PyTorch's network for every seat.
        say: Told what is being done.

    Raises:
        StageError: The schedule differs, a runtime refuses to run, or the reader fails.

    """
    # A reader that cannot be had is better known before the pictures are drawn.
    reader = reader_of(pipeline.reader)
    bench = _Bench(pipeline, inputs, candidates, torch_networks)
    _preload(bench, reference)
    for network in bench.candidates.values():
        network.always_runs = True
    free = listening(bench.networks(bench.seats))
    pipe = bench.pipe(free, factors=bench.vae(bench.seats))
    _require_schedule(case, reference, pipe, pipeline)

    steps = Steps()
    total = len(reference.timesteps)

    def told(
        step: int, t: float, latents: torch.Tensor, scheduler: Any
    ) -> torch.Tensor:
        say(f"step {step + 1} of {total}, free-running")
        return steps.told(step, t, latents, scheduler)

    guided = pipeline.app.guidance_scale
    pictures = draw(pipe, pipeline, inputs, on_step=told, guidance_scale=guided)
    rows = [*_conditioning(free, reference)]
    forced, predictions = _forced(bench, reference, say)
    rows += _step_rows("teacher-forced", forced, reference)
    rows += _step_rows("free-running", steps.latents, reference)
    rows.sort(key=lambda row: row.position)
    rows += _picture_rows(pipeline, reference, pictures, reader)
    about: dict[str, Any] = {
        "timesteps": reference.timesteps.tolist(),
        "growth": _growth(rows),
        **_guidance(pipeline, reference, predictions),
    }
    error = _power(reference.pictures, pictures)
    for network in bench.candidates.values():
        network.always_runs = False
    own_factor = float(pipe.vae.config.scaling_factor)
    settings = tried(
        other_settings(pipeline, own_factor),
        error,
        lambda name: _without(bench, reference, name, say),
    )
    about["app"] = [setting.to_json() for setting in settings]
    if pipeline.attribution and error > 0.0:
        say("exchanging seats")
        # Seats are exchanged with the reference's guidance, and share what that leaves.
        gone = next((s.share for s in settings if s.name == "guidance_scale"), 0.0)
        found = attribute(
            bench.seats,
            error * (1.0 - gone),
            lambda taken: _exchanged(bench, reference, taken, say),
        )
        about["attribution"] = found.to_json()
    return Measured(
        rows=tuple(rows), about=about, pictures=_shown(reference.pictures, pictures)
    )


def _preload(bench: _Bench, reference: Reference) -> None:
    """Have the denoiser's memory begin with what it answered in the reference."""
    denoiser = denoiser_of(bench.references)
    for key, answer in zip(reference.seen, reference.predictions, strict=True):
        denoiser.learn(key, {PREDICTION: torch.from_numpy(answer)})


def _require_schedule(
    case: str, reference: Reference, pipe: Any, pipeline: Pipeline
) -> None:
    """Refuse to run networks on another schedule: nothing later would mean anything.

    Raises:
        StageError: Saying what differs, and which setting is behind it.

    """
    gap = schedule_gap(reference.schedule, schedule_of(pipe, pipeline))
    if gap:
        why = config_gap(reference.settings, settings_of(pipe.scheduler))
        because = f"; {why}" if why else ""
        msg = (
            f"{case}: the scheduler differs before any network runs: {gap}{because}. "
            f"Make the app's {type(pipe.scheduler).__name__} as the checkpoint's."
        )
        raise StageError(msg, outcome=Outcome.SCHEDULE)


def _forced(
    bench: _Bench, reference: Reference, say: Say
) -> tuple[list[torch.Tensor], np.ndarray]:
    """Take every step from the reference's latents; return steps and predictions."""
    taken = [seat for seat in bench.seats if seat in DENOISING]
    networks = listening(bench.networks(taken))
    forcing = Forcing(reference.latents, reference.states)
    total = len(reference.timesteps)

    def told(
        step: int, t: float, latents: torch.Tensor, scheduler: Any
    ) -> torch.Tensor:
        say(f"step {step + 1} of {total}, teacher-forced")
        return forcing.told(step, t, latents, scheduler)

    pipe = bench.pipe(networks, factors=())
    told_pipeline = bench.pipeline
    draw(
        pipe,
        told_pipeline,
        bench.inputs,
        on_step=told,
        decode=False,
        guidance_scale=told_pipeline.app.guidance_scale,
    )
    return forcing.own, predictions_of(networks)


def _exchanged(
    bench: _Bench, reference: Reference, taken: frozenset[str], say: Say
) -> float:
    say(f"exchanging seats, candidate in {', '.join(sorted(taken))}")
    pipe = bench.pipe(bench.networks(taken), factors=bench.vae(taken))
    return _power(reference.pictures, draw(pipe, bench.pipeline, bench.inputs))


def _without(bench: _Bench, reference: Reference, name: str, say: Say) -> float:
    """Draw as the app does, but for one of its settings."""
    say(f"drawing without the app's {name}")
    told = without(bench.pipeline, name)
    cast = app_cast(told, bench.networks(bench.seats), bench.vae(bench.seats))
    pipe, guided = assemble(told, bench.inputs, cast), told.app.guidance_scale
    pictures = draw(pipe, told, bench.inputs, guidance_scale=guided)
    return _power(reference.pictures, pictures)


def _power(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the mean squared error; infinite where it is not finite."""
    power = float(np.mean((actual.astype(np.float64) - expected) ** 2))
    return power if math.isfinite(power) else math.inf


def _conditioning(heard_by: Mapping[str, Any], reference: Reference) -> Iterator[Row]:
    """Compare what is made before the first step."""
    for key, actual in conditions_of(heard_by).items():
        seat, _, name = key.partition(".")
        yield _row(
            name,
            position=-1,
            op=seat,
            module=seat,
            expected=reference.conditions[key],
            actual=actual,
            floor=reference.floors[key][0],
        )


def _step_rows(
    curve: str, made: Sequence[torch.Tensor], reference: Reference
) -> Iterator[Row]:
    total = len(reference.timesteps)
    begin = tuple(key.partition(".")[2] for key in reference.conditions)
    for step, (timestep, latents) in enumerate(
        zip(reference.timesteps, made, strict=True)
    ):
        own = f"teacher-forced.{step:02}"
        before = (f"free-running.{step - 1:02}",) if step else ()
        yield _row(
            f"{curve}.{step:02}",
            position=2 * step + (curve == "free-running"),
            op=curve,
            module=f"step {step + 1} of {total}",
            source=f"timestep {timestep:g}",
            parents=() if curve == "teacher-forced" else (*before, *begin, own),
            expected=reference.latents[step],
            actual=latents.numpy(),
            floor=reference.floors[curve][step],
        )


def _row(
    probe: str,
    *,
    position: int,
    op: str,
    module: str,
    expected: np.ndarray,
    actual: np.ndarray,
    floor: float,
    source: str = "",
    parents: tuple[str, ...] = (),
) -> Row:
    comparison = compare(expected=expected, actual=actual, floor_rms=float(floor))
    return Row(
        sample="pipeline",
        what=LATENTS,
        probe=probe,
        position=position,
        op=op,
        module=module,
        source=source,
        parents=parents,
        comparison=comparison,
    )


def _picture_rows(
    pipeline: Pipeline,
    reference: Reference,
    pictures: np.ndarray,
    reader: Reader | None,
) -> Iterator[Row]:
    for index, text in enumerate(pipeline.texts):
        yield Row(
            sample=f"picture-{index}",
            what=IMAGE,
            probe=f"picture.{index}",
            position=2 * len(reference.timesteps) + index,
            op="picture",
            module=text,
            source="",
            parents=(),
            comparison=compare_pictures(
                expected=reference.pictures[index],
                actual=pictures[index],
                floor_rms=float(reference.floors["pictures"][index]),
                read=None
                if reader is None
                else partial(
                    read_picture, reader, pipeline.reader, f"picture {index} ({text!r})"
                ),
            ),
        )


def _growth(rows: Sequence[Row]) -> float | None:
    """Return the factor by which the free-running error grows a step, on average."""
    errors = [row.comparison.rms for row in rows if row.op == "free-running"]
    if len(errors) < 2 or not errors[0] or not math.isfinite(errors[-1]):  # noqa: PLR2004  # two make a factor
        return None
    return float((errors[-1] / errors[0]) ** (1 / (len(errors) - 1)))


def _guidance(
    pipeline: Pipeline, reference: Reference, predictions: np.ndarray
) -> dict[str, Any]:
    """Say how guidance amplifies the error of the predictions, step by step.

    Guidance takes ``u + s (c - u)`` of the two halves of the batch; where their errors
    differ, that difference is multiplied by the scale s.
    """
    if not pipeline.guided:
        return {}
    error = predictions.astype(np.float64) - reference.predictions
    halves = np.split(error, 2, axis=1)
    guided = halves[0] + pipeline.guidance_scale * (halves[1] - halves[0])
    axes = tuple(range(1, error.ndim))
    raw = np.sqrt(np.mean(error**2, axis=axes))
    amplified = np.sqrt(np.mean(guided**2, axis=axes))
    ratio = np.divide(amplified, raw, out=np.ones_like(raw), where=raw > 0)
    exchanged = np.concatenate(np.split(predictions, 2, axis=1)[::-1], axis=1)
    left = float(np.mean((exchanged.astype(np.float64) - reference.predictions) ** 2))
    swapped = left < EXCHANGED**2 * float(np.mean(error**2))
    return {
        "guidance": [float(value) for value in ratio],
        "signature": "the halves of the guidance batch are exchanged"
        if swapped
        else "",
    }


def _shown(expected: np.ndarray, actual: np.ndarray) -> dict[str, bytes]:
    shown = {}
    for index, (one, two) in enumerate(zip(expected, actual, strict=True)):
        if index < _SHOWN:
            image, amplified = side_by_side(one, two)
            shown[f"{index}-difference-x{amplified:g}.png"] = png(image)
    return shown
