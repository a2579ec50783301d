"""What the benchmarks measure against; run in child processes, so importable."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from harness.core.case import Component, ExportSettings, Sample
from harness.core.entry import Entry
from harness.plugins.pipelines.case import PipelineRun

_OFF = 1e-4
"""A value that differs by more was not rounded."""


def bare_pytorch(component: Component, inputs: Entry) -> None:
    """Build the module and run it once."""
    import torch

    from harness.measure.trace import load_inputs
    from harness.recipes import recipe_module

    module = recipe_module(component.recipe).build(component)
    feeds = load_inputs(inputs, component)
    with torch.no_grad():
        module(*(torch.tensor(value) for value in feeds.values()))


def bare_onnxruntime(path: Path, component: Component, inputs: Entry) -> None:
    """Load the exported file and run it once."""
    import onnxruntime as ort

    from harness.measure.trace import load_inputs

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, load_inputs(inputs, component))


def bare_mnn(path: Path, component: Component, inputs: Entry) -> None:
    """Load the deployed file and run it once."""
    from harness.core.case import Device
    from harness.measure.trace import load_inputs
    from harness.runtimes.mnn.session import open_session

    names = [spec.name for spec in component.outputs]
    with open_session(path, Device(), names) as session:
        session.run(load_inputs(inputs, component))


def verify(
    component: Component, settings: ExportSettings, sample: Sample
) -> tuple[float, int]:
    """Return seconds and values of PyTorch's verification (in a child process)."""
    import torch
    from torch.onnx.verification import verify_onnx_program

    from harness.recipes import recipe_module
    from harness.recipes.inputs import draw

    module = recipe_module(component.recipe).build(component)
    batch = replace(sample, shapes=(("batch", 2), *sample.shapes[1:]))
    example = tuple(torch.tensor(v) for v in draw(component, batch).values())
    program = torch.onnx.export(
        module,
        example,
        dynamo=True,
        opset_version=settings.opset,
        verbose=False,
    )
    start = time.perf_counter()
    found = verify_onnx_program(program, args=example, compare_intermediates=True)
    return time.perf_counter() - start, len(found)


def bare_drawings(given: PipelineRun, *, all_of_them: bool) -> None:
    """Draw what an end-to-end case draws, or the two pictures alone; keep nothing."""
    import torch

    from harness.plugins.pipelines.case import DENOISING
    from harness.plugins.pipelines.drawing.draw import PipelineParts, assemble, draw
    from harness.plugins.pipelines.drawing.inputs import load_inputs
    from harness.plugins.pipelines.drawing.networks import Residents, SessionNetwork
    from harness.plugins.pipelines.drawing.reference import (
        Forcing,
        load_reference,
        torch_networks,
    )

    torch.set_num_threads(given.device.threads)
    pipeline, residents = given.pipeline, Residents()
    inputs = load_inputs(given.inputs.path, given.inputs.meta["texts"])
    reference = load_reference(given.reference.path, given.reference.meta)
    candidates = {
        file.role: SessionNetwork(file, residents) for file in given.role_files
    }
    singles = torch_networks(pipeline, residents, given.device)

    def drawn(networks, dtype=torch.float32, *, forced=False):
        cast = PipelineParts(networks=networks, sampling=pipeline.sampling, dtype=dtype)
        pipe = assemble(pipeline, inputs, cast)
        forcing = Forcing(reference.latents, reference.states)
        on_step = forcing.told if forced else None
        draw(pipe, pipeline, inputs, on_step=on_step, decode=not forced)

    drawn(singles)
    drawn(candidates)
    if all_of_them:
        doubles = torch_networks(pipeline, residents, given.device, torch.float64)
        drawn(doubles, torch.float64)
        drawn(doubles, torch.float64, forced=True)
        steps = {role: candidates[role] for role in pipeline.roles if role in DENOISING}
        drawn({**singles, **steps}, forced=True)
        for role in pipeline.roles:
            drawn({**singles, role: candidates[role]})
            drawn({**candidates, role: singles[role]})


def verify_planted(
    component: Component, settings: ExportSettings, sample: Sample, fault: str
) -> tuple[float, str, int]:
    """Plant a fault of the catalogue in PyTorch's own export, and have it verified.

    Returns:
        Seconds, the first value that is more than 1e-4 off, and values compared.

    """
    import onnx_ir
    import torch
    from torch.onnx.verification import verify_onnx_program

    from harness.recipes import recipe_module
    from harness.recipes.inputs import draw
    from tests.faults.catalogue import FAULTS

    recipe = recipe_module(component.recipe)
    module = recipe.build(component, attention=settings.attention)
    example = tuple(torch.tensor(v) for v in draw(component, sample).values())
    program = torch.onnx.export(
        module,
        example,
        dynamo=True,
        opset_version=settings.opset,
        verbose=False,
    )
    model = onnx_ir.serde.serialize_model(program.model)
    next(each for each in FAULTS if each.name == fault).plant.change(model)
    program.model = onnx_ir.serde.deserialize_model(model)
    start = time.perf_counter()
    found = verify_onnx_program(program, args=example, compare_intermediates=True)
    took = time.perf_counter() - start
    off = [info.name for info in found if info.max_abs_diff > _OFF]
    return took, off[0] if off else "nothing", len(found)
