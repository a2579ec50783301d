"""The stages of a pipeline case, which run in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

from harness.core.case import REFERENCE, Device
from harness.core.end_to_end import PAIRS
from harness.core.entry import Entry, check_artifact
from harness.engine.host import report_progress
from harness.engine.store import Store
from harness.plugins.pipelines.case import Pipeline, PipelineRun
from harness.plugins.pipelines.drawing.inputs import (
    PipelineInputs,
    draw_inputs,
    load_inputs,
    save_inputs,
)
from harness.plugins.pipelines.drawing.measure import measure
from harness.plugins.pipelines.drawing.networks import Residents, SessionNetwork
from harness.plugins.pipelines.drawing.pairs import compare_pairs
from harness.plugins.pipelines.drawing.reference import (
    load_reference,
    record,
    torch_networks,
)
from harness.plugins.pipelines.entries import DRAWING, DRAWING_INPUTS
from harness.plugins.pipelines.keys import drawing_inputs
from harness.runtimes.pytorch.prepare import ask_device


def draw_reference(
    root: Path, pipeline: Pipeline, device: Device, limit_gib: float | None = None
) -> None:
    """Draw inputs and PyTorch's pictures into the store.

    Networks are dropped from memory to stay within `limit_gib`, if that is given.

    Raises:
        StageError: PyTorch cannot run on `device`.
        SuiteError: A picture or a prompt cannot be used.

    """
    ask_device(device)
    store = Store(root=root)

    def build_inputs(folder: Path) -> Mapping[str, object]:
        report_progress("drawing", pipeline.name, "inputs")
        return save_inputs(draw_inputs(pipeline), folder)

    def build_reference(folder: Path) -> Mapping[str, object]:
        report_progress("drawing", pipeline.name, "float32 and float64")
        return record(pipeline, inputs_of(inputs), folder, device, limit_gib)

    drawn = drawing_inputs(pipeline)
    inputs = DRAWING_INPUTS.make(store, build_inputs, drawn)
    DRAWING.make(store, build_reference, pipeline, inputs, device)


def run_pipeline(given: PipelineRun) -> dict[str, Any]:
    """Run a pipeline with deployed files in its roles, and write the pictures.

    Returns:
        Fields of a `CaseRecord`: ``rows``, ``ran``, ``chain``.

    Raises:
        StageError: An artifact is damaged, the schedule differs, or a runtime refuses.

    """
    case, device, folder = given.case, given.device, given.folder
    ask_device(device)
    for entry in (
        given.inputs,
        given.reference,
        *(f.artifact for f in given.role_files),
    ):
        check_artifact(entry)
    residents = Residents(given.limit_gib)
    say = partial(report_progress, "running", case)
    candidates = {
        file.role: SessionNetwork(file, residents) for file in given.role_files
    }
    try:
        measured = measure(
            case=case,
            pipeline=given.pipeline,
            inputs=inputs_of(given.inputs),
            reference=load_reference(given.reference.path, given.reference.meta),
            candidates=candidates,
            torch_networks=torch_networks(given.pipeline, residents, device),
            say=say,
        )
        pairs: dict[str, Any] = {}
        worst: dict[str, bytes] = {}
        if given.pipeline.seeds:
            pairs, worst = compare_pairs(
                given.pipeline,
                inputs_of(given.inputs),
                candidates,
                store=Store(root=given.store),
                device=device,
                residents=residents,
                say=say,
            )
    finally:
        residents.close()
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in (*measured.pictures.items(), *worst.items()):
        (folder / name).write_bytes(picture)
    ran = [asdict(network.ran) for network in candidates.values() if network.ran]
    pictures, of_pairs = (
        [f"{folder.parent.name}/{folder.name}/{name}" for name in names]
        for names in (measured.pictures, worst)
    )
    if pairs:
        pairs["pictures"] = of_pairs
    return {
        "rows": measured.rows,
        "ran": _together(ran),
        "pipeline": {
            **measured.about,
            "pictures": pictures,
            **({PAIRS: pairs} if pairs else {}),
        },
    }


def inputs_of(entry: Entry) -> PipelineInputs:
    """Read a pipeline's inputs from their store entry."""
    return load_inputs(entry.path, cast("list[str]", entry.meta["texts"]))


def _together(ran: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one description of what ran; it names each of several runtimes."""
    if not ran:
        return {"backend": REFERENCE}
    words = {
        name: " + ".join(dict.fromkeys(str(each[name]) for each in ran))
        for name in ("backend", "version", "device", "precision")
    }
    return {**ran[0], **words}
