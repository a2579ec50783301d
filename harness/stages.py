"""What is sent to child processes: the requests, and where each is answered.

Importing this imports no framework; the stage does, on its side of the border.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.deployed import Deployed, Reading
from harness.e2e.plan import ChainRun, Pipeline
from harness.entry import Entry
from harness.explaining.excerpt import Spot
from harness.groups import Group
from harness.report.record import Row
from harness.spec import Component, Device, ExportSettings, Variant

PRELOAD = {
    "torch": ("diffusers", "transformers", "harness.torch_stage", "harness.warm"),
    "convert-mnn": (
        "MNN",
        "onnx",
        "harness.deploy_stage",
        "harness.explaining.excerpt_stage",
    ),
    "convert-onnxruntime": (
        "harness.deploy_stage",
        "harness.explaining.excerpt_stage",
        "harness.transform",
    ),
    "onnxruntime": (
        "harness.backends.onnxruntime",
        "harness.candidate",
        "harness.warm",
    ),
    "mnn": ("harness.backends.mnn", "harness.candidate", "harness.warm"),
    "tune": ("diffusers", "transformers", "harness.tuning.stage", "harness.warm"),
    "pipeline": ("diffusers", "transformers", "harness.e2e.stage", "harness.warm"),
}
"""Host to what its jobs need; imported once, forked for each job."""


def prepare(
    root: Path,
    component: Component,
    settings: ExportSettings,
    groups: Sequence[Group],
    device: Device,
) -> dict[str, float]:
    """Draw, export and record all that is missing for one component (`torch`)."""
    from harness import torch_stage

    return torch_stage.prepare(root, component, settings, groups, device)


def prepare_given(
    root: Path,
    component: Component,
    settings: ExportSettings,
    groups: Sequence[Group],
    device: Device,
) -> dict[str, float]:
    """Draw, take and record for a file that is its own reference (`onnxruntime`)."""
    from harness.taken import alone

    return alone.prepare_given(root, component, settings, groups, device)


def check_graph(
    root: Path,
    component: Component,
    settings: ExportSettings,
    graph: Entry,
    device: Device,
) -> None:
    """Compare a graph with its PyTorch module, running neither (`torch`)."""
    from harness import torch_stage

    torch_stage.check(root, component, settings, graph, device)


def weigh(component: Component) -> int:
    """Return the bytes of a component's weights, drawing none (`torch`)."""
    from harness import torch_stage

    return torch_stage.weigh(component)


def deploy(
    root: Path,
    component: Component,
    variant: Variant,
    onnx: Entry,
    native: str | None,
) -> float:
    """Make one variant's deployed file and return seconds taken (`convert-*`)."""
    from harness import deploy_stage

    return deploy_stage.deploy(root, component, variant, onnx, native)


def take_mnn(root: Path, component: Component) -> None:
    """Take an ``.mnn`` file that others converted (`convert-mnn`)."""
    from harness.taken import mnn

    mnn.take_mnn(root, component)


def cut_excerpt(
    root: Path,
    component: Component,
    graph: Entry,
    reading: Reading,
    spot: Spot,
) -> None:
    """Cut one value's part out of an exported graph (`convert-*`)."""
    from harness.explaining import excerpt_stage

    excerpt_stage.cut_excerpt(root, component, graph, reading, spot)


def run_candidate(
    case: str,
    component: Component,
    device: Device,
    backend: str,
    deployed: Sequence[Deployed],
) -> dict[str, Any]:
    """Run a deployed file and compare it while it runs (the backend's own host)."""
    from harness import candidate

    return candidate.run_candidate(case, component, device, backend, deployed)


def run_isolated(
    case: str,
    component: Component,
    device: Device,
    backend: str,
    file: Deployed,
) -> tuple[Row, ...]:
    """Run operators on the reference's own inputs (the backend's own host)."""
    from harness import isolated

    return isolated.run_isolated(case, component, device, backend, file)


def draw_reference(
    root: Path, pipeline: Pipeline, device: Device, limit_gib: float | None = None
) -> float:
    """Draw a pipeline with PyTorch alone; return seconds taken (`pipeline`)."""
    from harness.e2e import stage

    return stage.draw_reference(root, pipeline, device, limit_gib)


def run_chain(given: ChainRun) -> dict[str, Any]:
    """Draw with deployed files in the seats, and compare (`pipeline`)."""
    from harness.e2e import stage

    return stage.run_chain(given)


def tune(plan: object) -> object:
    """Measure a component on many inputs (`tune`); see `harness.tuning.plan`."""
    from harness.tuning import stage

    return stage.measure_component(plan)  # type: ignore[arg-type]  # plans lie above


def time_turn(turn: object) -> object:
    """Time one subject once (its runtime's host); see `harness.benching.timing`."""
    from harness.benching import stage

    return stage.time_turn(turn)  # type: ignore[arg-type]  # turns lie above


def clock_turn(turn: object) -> object:
    """Time each operator of a subject (its runtime's host)."""
    from harness.benching import stage

    return stage.clock_turn(turn)  # type: ignore[arg-type]  # turns lie above


def time_drawing(drawing: object) -> object:
    """Time a whole pipeline once (`pipeline`)."""
    from harness.benching import drawing as stage

    return stage.time_drawing(drawing)  # type: ignore[arg-type]  # drawings lie above
