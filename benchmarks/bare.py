"""What the benchmarks measure against; run in child processes, so importable."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from harness.entry import Entry
from harness.spec import Component, ExportSettings, Sample


def bare_pytorch(component: Component, inputs: Entry) -> None:
    """Build the module and run it once."""
    import torch

    from harness.components import recipe_module
    from harness.trace import load_inputs

    module = recipe_module(component.recipe).build(component)
    feeds = load_inputs(inputs, component)
    with torch.no_grad():
        module(*(torch.tensor(value) for value in feeds.values()))


def bare_onnxruntime(path: Path, component: Component, inputs: Entry) -> None:
    """Load the exported file and run it once."""
    import onnxruntime as ort

    from harness.trace import load_inputs

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, load_inputs(inputs, component))


def bare_mnn(path: Path, component: Component, inputs: Entry) -> None:
    """Load the deployed file and run it once."""
    from harness.backends.mnn import open_session
    from harness.spec import Device
    from harness.trace import load_inputs

    names = [spec.name for spec in component.outputs]
    with open_session(path, Device(), names) as session:
        session.run(load_inputs(inputs, component))


def verify(
    component: Component, settings: ExportSettings, sample: Sample
) -> tuple[float, int]:
    """Return seconds and values of PyTorch's verification (in a child process)."""
    import torch
    from torch.onnx.verification import verify_onnx_program

    from harness.components import recipe_module
    from harness.inputs import draw

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
