"""PyTorch's own pictures in bfloat16 or float16, compared with its float32 pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.core.case import Device
from harness.core.comparison import to_columns
from harness.core.entry import Entry
from harness.engine.host import report_progress
from harness.plugins.pipelines.case import Pipeline
from harness.plugins.pipelines.drawing.draw import PipelineParts, assemble, draw
from harness.plugins.pipelines.drawing.measure import picture_rows
from harness.plugins.pipelines.drawing.networks import Residents
from harness.plugins.pipelines.drawing.reference import load_reference, self_networks
from harness.plugins.pipelines.drawing.worker import inputs_of
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.pytorch.self_error import refusal


def draw_self(  # noqa: PLR0917  # a worker's arguments have no names
    folder: Path,
    pipeline: Pipeline,
    inputs: Entry,
    reference: Entry,
    device: Device,
    dtype: str,
    limit_gib: float | None = None,
) -> Mapping[str, object]:
    """Draw with PyTorch's networks in `dtype`, and return how far pictures are off.

    The `folder` stays empty. The networks compute in `dtype`; latents and the scheduler
    stay in float32.

    `dtype` is ``bfloat16`` or ``float16``. `limit_gib` is the memory that may be used,
    in GiB; None or 0 for all that there is.

    Raises:
        StageError: PyTorch cannot run a network in this dtype.

    """
    del folder
    ask_device(device)
    residents = Residents(limit_gib)
    report_progress("drawing", pipeline.name, f"PyTorch's own {dtype}")
    networks = self_networks(pipeline, residents, device, dtype)
    parts = PipelineParts(networks=networks, sampling=pipeline.sampling)
    given = inputs_of(inputs)
    try:
        made = draw(assemble(pipeline, given, parts), pipeline, given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise refusal(pipeline.name, dtype, error) from error
    finally:
        residents.close()
    expected = load_reference(reference.path, reference.meta)
    rows = list(picture_rows(pipeline, expected, made, None))
    return {
        "samples": [row.sample for row in rows],
        "probes": [row.probe for row in rows],
        "rows": to_columns([row.comparison for row in rows]),
    }
