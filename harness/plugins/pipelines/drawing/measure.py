"""Run a pipeline with deployed files in its roles; compare each step with PyTorch's.

This runs in a child process; numbers and small pictures come back.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from harness.core.end_to_end import IMAGE, LATENTS
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.record import Row
from harness.measure.attribution import attribute
from harness.measure.compare import compare
from harness.measure.pictures import compare_pictures, png, side_by_side
from harness.plugins.pipelines.case import DENOISING, Pipeline, other_settings
from harness.plugins.pipelines.drawing.draw import OnStep, app_parts, assemble, draw
from harness.plugins.pipelines.drawing.inputs import PipelineInputs
from harness.plugins.pipelines.drawing.networks import Network, Remembered
from harness.plugins.pipelines.drawing.reference import (
    PREDICTION,
    Forcing,
    Reference,
    Steps,
    conditions_of,
    denoiser_of,
    listening,
    predictions_of,
)
from harness.plugins.pipelines.drawing.schedule import (
    config_gap,
    schedule_gap,
    schedule_of,
    settings_of,
)

EXCHANGED = 0.1
"""Below this remaining share of the error, exchanged halves of the batch explain it."""

_SHOWN = 8
"""Number of pictures that are kept for a case."""

Say = Callable[[str], None]
Reader = Callable[[np.ndarray], object]
"""A suite's own function, which returns a text about what a picture shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPictures:
    """The results of a pipeline case.

    Attributes:
        rows: Comparisons of latents and pictures.
        about: Facts about how errors grow, how guidance changes them, and which roles
            cause them.
        pictures: File name to PNG: reference, candidate and difference, side by side.

    """

    rows: tuple[Row, ...]
    about: Mapping[str, Any]
    pictures: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """One case's pipeline, its inputs, and every network that its roles may have."""

    pipeline: Pipeline
    inputs: PipelineInputs
    reference: Reference
    candidates: Mapping[str, Remembered]
    references: Mapping[str, Remembered]
    say: Say

    def networks(self, taken: Collection[str]) -> dict[str, Network]:
        """Return a network for every role: the candidate's in the roles of `taken`."""
        return {
            role: self.candidates[role] if role in taken else self.references[role]
            for role in self.pipeline.roles
        }

    def pipe(self, networks: Mapping[str, Network], taken: Collection[str]) -> Any:
        """Return diffusers' pipeline as the app runs it."""
        parts = app_parts(self.pipeline, networks, taken)
        return assemble(self.pipeline, self.inputs, parts)

    def error(self, taken: Collection[str], *, guidance: float | None) -> float:
        """Draw with the candidate in the roles of `taken`; return the squared error."""
        pipe = self.pipe(self.networks(taken), taken)
        made = draw(pipe, self.pipeline, self.inputs, guidance_scale=guidance)
        return _power(self.reference.pictures, made)

    def without(self, name: str) -> float:
        """Run without one of the app's settings; return the squared error."""
        self.say(f"drawing without the app's {name}")
        app = replace(self.pipeline.app, **{name: None})
        told = replace(self.pipeline, app=app)
        other = replace(self, pipeline=told)
        return other.error(self.candidates, guidance=told.app.guidance_scale)

    def exchanged(self, taken: Collection[str]) -> float:
        """Run with the candidate in a few roles; return the squared error."""
        self.say(f"exchanging roles, candidate in {', '.join(sorted(taken))}")
        return self.error(taken, guidance=None)

    def telling(self, curve: str, on_step: OnStep) -> OnStep:
        """Return a function that reports a step before `on_step` gets it."""
        total = len(self.reference.timesteps)

        def told(step: int, t: float, latents: torch.Tensor, used: Any) -> torch.Tensor:
            self.say(f"step {step + 1} of {total}, {curve}")
            return on_step(step, t, latents, used)

        return told


def measure(
    *,
    case: str,
    pipeline: Pipeline,
    inputs: PipelineInputs,
    reference: Reference,
    candidates: Mapping[str, Network],
    torch_networks: Mapping[str, Network],
    say: Say = lambda _: None,
) -> MeasuredPictures:
    """Run free-running and teacher-forced, compare, and find which roles cause errors.

    `candidates` has the networks of some roles; PyTorch's networks have the others.
    `say` gets each progress message.

    Raises:
        StageError: The schedule differs, a runtime refuses to run, or the reader fails.

    """
    # A reader that cannot be imported must fail before the pictures are drawn.
    reader = reader_of(pipeline.reader)
    bench = _Bench(
        pipeline=pipeline,
        inputs=inputs,
        reference=reference,
        candidates={
            role: Remembered(candidates[role])
            for role in pipeline.roles
            if role in candidates
        },
        references={role: Remembered(each) for role, each in torch_networks.items()},
        say=say,
    )
    _preload(bench)
    for network in bench.candidates.values():
        network.always_runs = True
    free = listening(bench.networks(bench.candidates))
    pipe = bench.pipe(free, bench.candidates)
    _require_schedule(case, reference, pipe, pipeline)
    steps = Steps()
    pictures = draw(
        pipe,
        pipeline,
        inputs,
        on_step=bench.telling("free-running", steps.told),
        guidance_scale=pipeline.app.guidance_scale,
    )
    rows = [*_conditioning(free, reference)]
    forced, predictions = _forced(bench)
    rows += _step_rows("teacher-forced", forced, reference)
    rows += _step_rows("free-running", steps.latents, reference)
    rows.sort(key=lambda row: row.position)
    rows += picture_rows(pipeline, reference, pictures, reader)
    about: dict[str, Any] = {
        "timesteps": reference.timesteps.tolist(),
        "growth": _growth(rows),
        **_guidance(pipeline, reference, predictions),
    }
    error = _power(reference.pictures, pictures)
    for network in bench.candidates.values():
        network.always_runs = False
    own_factor = float(pipe.vae.config.scaling_factor)
    settings = []
    for one in other_settings(pipeline, own_factor) if error > 0.0 else ():
        share = 1.0 - bench.without(one.name) / error
        settings.append(replace(one, share=max(0.0, share)))
    about["app"] = [asdict(setting) for setting in settings]
    if pipeline.attribution and error > 0.0:
        say("exchanging roles")
        # Roles are exchanged with the reference's guidance. So they share the error
        # without the part that the app's guidance causes.
        gone = next((s.share for s in settings if s.name == "guidance_scale"), 0.0)
        found = attribute(list(bench.candidates), error * (1.0 - gone), bench.exchanged)
        about["attribution"] = found.to_json()
    return MeasuredPictures(
        rows=tuple(rows), about=about, pictures=_shown(reference.pictures, pictures)
    )


def _preload(bench: _Bench) -> None:
    """Fill the denoiser's memory with its outputs in the reference."""
    reference, denoiser = bench.reference, denoiser_of(bench.references)
    for key, answer in zip(reference.seen, reference.predictions, strict=True):
        denoiser.learn(key, {PREDICTION: torch.from_numpy(answer)})


def _require_schedule(
    case: str, reference: Reference, pipe: Any, pipeline: Pipeline
) -> None:
    """Refuse to run networks on another schedule: no later comparison would be valid.

    Raises:
        StageError: The schedules differ; the message names the difference and the
            setting that causes it.

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


def _forced(bench: _Bench) -> tuple[list[torch.Tensor], np.ndarray]:
    """Make every step from the reference's latents; return steps and predictions."""
    taken = [role for role in bench.candidates if role in DENOISING]
    networks = listening(bench.networks(taken))
    forcing = Forcing(bench.reference.latents, bench.reference.states)
    draw(
        bench.pipe(networks, taken),
        bench.pipeline,
        bench.inputs,
        on_step=bench.telling("teacher-forced", forcing.told),
        decode=False,
        guidance_scale=bench.pipeline.app.guidance_scale,
    )
    return forcing.own, predictions_of(networks)


def _power(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the mean squared error; infinite where it is not finite."""
    power = float(np.mean((actual.astype(np.float64) - expected) ** 2))
    return power if math.isfinite(power) else math.inf


def _conditioning(heard_by: Mapping[str, Any], reference: Reference) -> Iterator[Row]:
    """Compare the values that are computed before the first step."""
    for key, actual in conditions_of(heard_by).items():
        role, _, name = key.partition(".")
        yield Row(
            sample="pipeline",
            what=LATENTS,
            probe=name,
            position=-1,
            op=role,
            module=role,
            comparison=compare(
                expected=reference.conditions[key],
                actual=actual,
                floor_rms=float(reference.floors[key][0]),
            ),
        )


def _step_rows(
    curve: str, made: Sequence[torch.Tensor], reference: Reference
) -> Iterator[Row]:
    begin = tuple(key.partition(".")[2] for key in reference.conditions)
    timed = zip(reference.timesteps, made, strict=True)
    for step, (timestep, latents) in enumerate(timed):
        own = f"teacher-forced.{step:02}"
        before = (f"free-running.{step - 1:02}",) if step else ()
        yield Row(
            sample="pipeline",
            what=LATENTS,
            probe=f"{curve}.{step:02}",
            position=2 * step + (curve == "free-running"),
            op=curve,
            module=f"step {step + 1} of {len(reference.timesteps)}",
            source=f"timestep {timestep:g}",
            parents=() if curve == "teacher-forced" else (*before, *begin, own),
            comparison=compare(
                expected=reference.latents[step],
                actual=latents.numpy(),
                floor_rms=float(reference.floors[curve][step]),
            ),
        )


def picture_rows(
    pipeline: Pipeline,
    reference: Reference,
    pictures: np.ndarray,
    reader: Reader | None,
) -> Iterator[Row]:
    """Compare pictures with the reference's; a reader may read each of them."""
    for index, text in enumerate(pipeline.texts):
        yield Row(
            sample=f"picture-{index}",
            what=IMAGE,
            probe=f"picture.{index}",
            position=2 * len(reference.timesteps) + index,
            op="picture",
            module=text,
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
    """Return the factor by which the free-running error grows per step, on average."""
    errors = [row.comparison.rms for row in rows if row.op == "free-running"]
    if len(errors) < 2 or not errors[0] or not math.isfinite(errors[-1]):  # noqa: PLR2004  # two make a factor
        return None
    return float((errors[-1] / errors[0]) ** (1 / (len(errors) - 1)))


def _guidance(
    pipeline: Pipeline, reference: Reference, predictions: np.ndarray
) -> dict[str, Any]:
    """Return how guidance amplifies the error of the predictions, step by step.

    Guidance computes ``u + s (c - u)`` from the two halves of the batch. Where their
    errors differ, that difference is multiplied by the scale s.
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
    for index in range(min(_SHOWN, len(expected))):
        image, amplified = side_by_side(expected[index], actual[index])
        shown[f"{index}-difference-x{amplified:g}.png"] = png(image)
    return shown


@functools.cache  # a module that runs again loses what it has prepared for its pictures
def reader_of(path: str) -> Reader | None:
    """Import the function that ``file.py:function`` or ``module:function`` names.

    Raises:
        StageError: The function cannot be imported, or is no function.

    """
    if not path:
        return None
    place, _, name = path.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)  # noqa: TID251  # the suite names it
            assert spec is not None  # noqa: S101  # a .py file has a loader
            assert spec.loader is not None  # noqa: S101  # as above
            module = importlib.util.module_from_spec(spec)
            # Dataclasses look their module up there.
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        reader: object = getattr(module, name)
    except Exception as error:  # a suite's own code may raise anything
        what = f"reader {path!r} cannot be imported"
        raise _failed(error, what) from error
    if not callable(reader):
        msg = f"reader {path!r} is no function but {reader!r}."
        raise StageError(msg, outcome=Outcome.RUN)
    return cast("Reader", reader)


def read_picture(reader: Reader, path: str, shown: str, picture: np.ndarray) -> str:
    """Return a reader's text about a picture.

    `path` is the reader's name in the suite, and `shown` that of the picture, which is
    uint8 ``[height, width, 3]``.

    Raises:
        StageError: The reader raised an exception; the message names both.

    """
    try:
        return str(reader(picture))
    except Exception as error:  # as above
        what = f"reader {path!r} cannot read {shown}"
        raise _failed(error, what) from error


def _failed(error: Exception, what: str) -> StageError:
    msg = f"{what}: {type(error).__name__}: {error}"
    return StageError(msg, outcome=Outcome.RUN, log=traceback.format_exc())
