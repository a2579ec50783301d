"""The stages of pipelines: PyTorch's drawing, and one with deployed files.

The process that people start calls these functions; they look in the store, and have
missing entries made in child processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.core.case import Case, Device
from harness.core.digest import digest_value
from harness.core.entry import Entry
from harness.core.outcome import Outcome
from harness.core.record import SELF, Row
from harness.core.rounding import Bits, Effects
from harness.engine import keys
from harness.engine.artifacts import Artifacts, each_self, self_rows_of
from harness.engine.kept import seen
from harness.engine.made_of import made_of
from harness.engine.stage import lost
from harness.engine.worker_pool import add_seconds
from harness.plugins.pipelines.case import (
    Pipeline,
    PipelineCase,
    PipelineRun,
    RoleFile,
)
from harness.plugins.pipelines.entries import (
    DRAWING,
    DRAWING_EFFECTS,
    DRAWING_INPUTS,
    SELF_DRAWN,
)
from harness.plugins.pipelines.keys import drawing_inputs, drawing_question
from harness.plugins.pipelines.needs import drawing_need, pipeline_need

if TYPE_CHECKING:
    from harness.engine.engine import Engine

DRAW_REFERENCE: Final = "harness.plugins.pipelines.drawing.worker:draw_reference"
"""Draws a pipeline with PyTorch alone (`torch`)."""

RUN_PIPELINE: Final = "harness.plugins.pipelines.drawing.worker:run_pipeline"
"""Draws with deployed files in a pipeline and compares (`torch`)."""


def prepare(artifacts: Artifacts, case: PipelineCase) -> tuple[Entry, Entry]:
    """Make what cases of one pipeline share: its inputs and PyTorch's drawing."""
    return draw(artifacts, case.pipeline, case.device)


def draw(
    artifacts: Artifacts, pipeline: Pipeline, device: Device
) -> tuple[Entry, Entry]:
    """Return a pipeline's inputs and PyTorch's drawing; make missing ones."""
    drawn = drawing_inputs(pipeline)
    pool = artifacts.worker_pool
    with pool.one_at_a_time(digest_value((drawn, asdict(device)))):
        entries = _drawing(artifacts, drawn, pipeline, device)
        if entries is None:
            result = pool.job(
                "torch",
                DRAW_REFERENCE,
                artifacts.store.root,
                pipeline,
                device,
                pool.memory_gib,
                subject=pipeline.name,
                label=f"{pipeline.name}: reference",
                failure=Outcome.REFERENCE,
                need=drawing_need(pipeline, artifacts.weights),
            )
            add_seconds("reference", result.wall_ns / 1e9)
            entries = _drawing(artifacts, drawn, pipeline, device)
    if entries is None:
        raise lost(pipeline.name)
    return entries


def _drawing(
    artifacts: Artifacts,
    drawn: Mapping[str, object],
    pipeline: Pipeline,
    device: Device,
) -> tuple[Entry, Entry] | None:
    inputs = DRAWING_INPUTS.find(artifacts.store, drawn)
    if inputs is None:
        return None
    reference = DRAWING.find(artifacts.store, pipeline, inputs, device)
    return None if reference is None else (inputs, reference)


def role_file(artifacts: Artifacts, case: Case, role: str) -> RoleFile:
    """Return a case's deployed file for a role of a pipeline; make missing ones."""
    artifact, model = artifacts.deploy(case, artifacts.export(case))
    return RoleFile(
        role=role,
        component=case.component,
        backend=case.backend,
        device=case.device,
        artifact=artifact,
        model=model,
    )


def run(artifacts: Artifacts, case: PipelineCase, pictures: Path) -> dict[str, Any]:
    """Draw with the deployed files of a case, and return the fields of its record."""
    case = artifacts.known(case)
    pipeline, pool = case.pipeline, artifacts.worker_pool
    inputs, reference = draw(artifacts, pipeline, case.device)
    role_files = tuple(
        role_file(artifacts, part, role)
        for role, part in case.roles
        if part is not None
    )
    result = pool.job(
        "torch",
        RUN_PIPELINE,
        PipelineRun(
            case=case.id,
            pipeline=pipeline,
            role_files=role_files,
            inputs=inputs,
            reference=reference,
            device=case.device,
            folder=pictures / case.id.replace("/", "+"),
            store=artifacts.store.root,
            limit_gib=pool.memory_gib,
        ),
        subject=case.id,
        label=case.id,
        failure=Outcome.RUN,
        need=pipeline_need(case, artifacts.weights),
        on_target=bool(case.targets),
    )
    ran_on = [(file.backend, file.device) for file in role_files]
    fields = seen(result, case.id, ran_on)
    fields["rows"] += _self_pictures(artifacts, case, inputs, reference)
    return {
        **fields,
        "inputs": {"": drawing_question(pipeline)},
        "made_of": made_of(pipeline.components),
        "pipeline": {"roles": case.asked, **fields["pipeline"]},
        "artifacts": {file.role: file.artifact.summary for file in role_files},
    }


def _self_pictures(
    artifacts: Artifacts, case: PipelineCase, inputs: Entry, reference: Entry
) -> tuple[Row, ...]:
    """Return PyTorch's own error of pictures, in each dtype that is asked for."""
    device, pipeline = case.device, case.pipeline

    def rows(name: str) -> Iterator[Row]:
        dtype = SELF[name]
        entry = artifacts.make(
            SELF_DRAWN,
            *(pipeline, inputs, reference, device, dtype),
            artifacts.worker_pool.memory_gib,
            decides=(pipeline, inputs, device, dtype, keys.processor(device)),
            subject=pipeline.name,
            label=f"{pipeline.name}: PyTorch's own {dtype}",
            need=partial(drawing_need, pipeline, artifacts.weights),
        )
        yield from self_rows_of(name, entry)

    return each_self(case.within, rows)


def drawing_effects(
    engine: Engine,
    drawing: PipelineCase,
    role: str,
    trials: Sequence[Bits],
    only: Sequence[int] = (),
) -> Effects:
    """Return the effects of rounded weights on a pipeline's latents and pictures.

    The pipeline has the runtime's float32 file in `role`. Each trial rounds some
    of its layers. `only` has the numbers of the prompts to draw, one picture each;
    it is empty for all.
    """
    artifacts = engine.artifacts
    drawing = artifacts.known(drawing)
    case = dict(drawing.roles)[role]
    assert case is not None  # noqa: S101  # the caller names a role with a file
    pipeline = drawing.pipeline
    inputs, _ = draw(artifacts, pipeline, drawing.device)
    drawn = DRAWING.key(pipeline, inputs, drawing.device)
    return artifacts.effects(
        DRAWING_EFFECTS,
        engine.trials(case, trials, only),
        {"drawing": drawn, "role": role},
        *(pipeline, role, inputs, artifacts.worker_pool.memory_gib),
        need=pipeline_need(drawing, artifacts.weights),
    )
