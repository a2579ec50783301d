"""Draw with a pipeline in which one role's weights are rounded as a runtime would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.core.entry import Entry
from harness.core.rounding import Trials
from harness.plugins.pipelines.case import Pipeline
from harness.plugins.pipelines.drawing.draw import PipelineParts, assemble, draw
from harness.plugins.pipelines.drawing.networks import (
    Network,
    Remembered,
    Residents,
    run_module,
)
from harness.plugins.pipelines.drawing.reference import (
    Steps,
    conditions_of,
    listening,
    torch_networks,
)
from harness.plugins.pipelines.drawing.worker import inputs_of
from harness.runtimes.pytorch.rounded import Values, effects, roundable, save_effects


def drawing_effects(  # noqa: PLR0917  # a worker's arguments have no names
    folder: Path,
    given: Trials,
    pipeline: Pipeline,
    role: str,
    inputs: Entry,
    limit_gib: float | None = None,
) -> None:
    """Write to a folder how far each trial moves a pipeline's latents and pictures.

    The pipeline has one picture for each prompt.

    The trials' component has the `role`; PyTorch's own networks have the others.
    `limit_gib` is the memory in GiB that networks may take; None for what is there.

    Raises:
        StageError: PyTorch cannot run on the device.

    """
    network = roundable(given)
    residents = Residents(limit_gib)
    networks: dict[str, Network] = {
        name: Remembered(own)
        for name, own in torch_networks(pipeline, residents, given.device).items()
    }
    networks[role] = lambda feeds: run_module(
        network.module, given.component, feeds, given.device
    )
    stored, only = inputs_of(inputs), given.only or range(len(pipeline.prompts))
    stored = replace(stored, noise=stored.noise[:, list(only)])
    pipeline = replace(pipeline, prompts=tuple(pipeline.prompts[at] for at in only))

    def values() -> Values:
        # A plan's file is judged by what its role gives the first step, too.
        heard = listening({role: networks[role]})
        parts = PipelineParts(
            networks={**networks, **heard}, sampling=pipeline.sampling
        )
        steps, pipe = Steps(), assemble(pipeline, stored, parts)
        pictures = draw(pipe, pipeline, stored, on_step=steps.told)
        return {
            **{f"condition {key}": each for key, each in conditions_of(heard).items()},
            **{f"step {n:02}": each.numpy() for n, each in enumerate(steps.latents)},
            **{f"picture {n}": each for n, each in zip(only, pictures, strict=True)},
        }

    try:
        save_effects(effects(network, given, values), folder)
    finally:
        residents.close()
