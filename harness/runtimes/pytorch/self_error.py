"""PyTorch's own error in bfloat16 or float16, compared with its float32 outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from harness.core.case import Component, Device
from harness.core.comparison import to_columns
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.engine.deployed import Reading
from harness.engine.host import report_progress
from harness.engine.keys import processor
from harness.engine.store import Store
from harness.engine.tasks import SELF
from harness.measure.compare import compare
from harness.measure.trace import OUTPUT, load_inputs, open_trace
from harness.recipes import recipe_module
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.pytorch.program import as_tuple, in_float32, placed
from harness.runtimes.pytorch.reference import named_outputs


def measure_self(
    root: Path,
    component: Component,
    readings: Sequence[Reading],
    device: Device,
    dtype: str,
) -> None:
    """Run a component's module in `dtype`, and store how far its outputs are off.

    `dtype` is ``bfloat16`` or ``float16``, for weights, inputs and values. The store
    gets an entry for each reading.

    Raises:
        StageError: PyTorch cannot run the module in this dtype.

    """
    ask_device(device)
    store, precision = Store(root=root), getattr(torch, dtype)
    module = recipe_module(component.recipe).build(component)
    module = module.to(device.device, precision)

    def build(reading: Reading, _: Path) -> Mapping[str, object]:
        detail = f"PyTorch's own {dtype}, {reading.sample}"
        report_progress("recording", component.name, detail)
        feeds = load_inputs(reading.inputs, component)
        given = (
            placed(spec, torch.tensor(feeds[spec.name]), precision, device)
            for spec in component.inputs
        )
        try:
            with torch.no_grad():
                made = as_tuple(module(*given))
        except (RuntimeError, TypeError, ValueError) as error:
            raise refusal(component.name, dtype, error) from error
        outputs = named_outputs(component, tuple(map(in_float32, made)))
        expected = open_trace(reading.reference.path)
        found = {
            name: compare(
                expected=expected[OUTPUT + name],
                actual=outputs[OUTPUT + name],
                floor_rms=expected.floor_rms(OUTPUT + name),
            )
            for name in expected.outputs
        }
        return {"probes": list(found), "rows": to_columns(list(found.values()))}

    for reading in readings:
        decides = reading.reference.key_digest, dtype, processor(device)
        SELF.make(store, partial(build, reading), *decides)


def refusal(name: str, dtype: str, error: Exception) -> StageError:
    """Return the error of a network that PyTorch cannot run in `dtype`."""
    msg = (
        f"PyTorch cannot run {name} in {dtype} here ({first_line(error)}); state "
        "another bound in tolerances.toml"
    )
    return StageError(msg, outcome=Outcome.REFERENCE)
