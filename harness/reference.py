"""Run the reference: PyTorch's unmodified module, its program, and its noise.

The module itself gives the outputs, and is run twice to see that it may serve. The
program, which is what the exporter translated, gives the values in between. Both are
then run in float64; how far float32 is from that is each value's noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from harness.align import MASKED, ended
from harness.compare import compare
from harness.errors import StageError
from harness.outcome import Outcome
from harness.program import Program, as_tuple
from harness.spec import Component
from harness.trace import OUTPUT, Trace, TraceWriter


def check_reference(
    module: torch.nn.Module,
    component: Component,
    inputs: Mapping[str, np.ndarray],
) -> tuple[torch.Tensor, ...]:
    """Run the module twice and return its outputs, if it may serve as reference.

    Raises:
        StageError: It is in train mode, changes its inputs, gives two answers, or
            does not return the outputs that the component promises.

    """
    training = [
        name or "the module" for name, m in module.named_modules() if m.training
    ]
    if training:
        _unsound(
            f"{component.name} is in train mode ({training[0]} and "
            f"{len(training) - 1} more); call .eval() where it is built."
        )
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    with torch.no_grad():
        first = as_tuple(module(*tensors.values()))
        first = tuple(value.clone() for value in first)
        for name, value in tensors.items():
            if not np.array_equal(value.numpy(), inputs[name]):
                _unsound(
                    f"{component.name} changes its input {name!r} in place, so the "
                    "next run sees other numbers; clone it in forward."
                )
        second = as_tuple(module(*tensors.values()))
    if len(first) != len(component.outputs):
        _unsound(
            f"{component.name} returns {len(first)} tensors, its recipe promises "
            f"{len(component.outputs)}: {[o.name for o in component.outputs]}."
        )
    for spec, one, two in zip(component.outputs, first, second, strict=True):
        if not torch.equal(one, two) and not (one.isnan() | two.isnan()).any():
            gap = (one.double() - two.double()).abs().max().item()
            _unsound(
                f"{component.name} is random: two runs on the same inputs differ in "
                f"{spec.name!r} by up to {gap:.3e}; take the mode, not a sample."
            )
    return first


def _unsound(message: str) -> None:
    raise StageError(message, outcome=Outcome.REFERENCE)


def record_reference(  # one run's whole circumstances
    module: torch.nn.Module,
    program: Program,
    component: Component,
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    *,
    layers: bool,
) -> dict[str, object]:
    """Write the trace of one sample to `folder`, and return what was seen.

    Args:
        module: The unmodified module.
        program: Its program, perhaps of a copy made to be exportable.
        component: Names of the outputs.
        inputs: One sample, by name, in order.
        folder: Empty; gets the trace's two files.
        layers: Whether to record the program's values, or outputs alone.

    Returns:
        ``values``, how many were recorded; ``rewrite_max_abs``, how far the program's
        outputs are from the module's, 0 when nothing had to be rewritten.

    Raises:
        StageError: The module may not serve as a reference.

    """
    outputs = check_reference(module, component, inputs)
    writer = TraceWriter(folder)
    for spec, value in zip(component.outputs, outputs, strict=True):
        writer.add(OUTPUT + spec.name, value.numpy())
    tensors = tuple(torch.tensor(value) for value in inputs.values())

    def record(name: str, value: torch.Tensor) -> None:
        if layers:
            floating = value.is_floating_point() and value.numel() > 0
            is_mask = floating and bool((value.abs() > MASKED).any())
            writer.add(name, value.detach().numpy(), is_mask=is_mask)

    rewritten = program.run(tensors, record)
    gap = max(
        (one.double() - two.double()).abs().max().item()
        for one, two in zip(outputs, rewritten, strict=True)
    )
    floors = _noise(program, tensors, writer.view(), component)
    return {"values": writer.close(floors), "rewrite_max_abs": gap}


def _noise(
    program: Program,
    inputs: tuple[torch.Tensor, ...],
    recorded: Trace,
    component: Component,
) -> dict[str, float]:
    """Run in float64 and return each recorded value's RMS error, in its own unit."""
    floors: dict[str, float] = {}

    def measure(name: str, value: torch.Tensor) -> None:
        if name not in recorded:
            return
        single = recorded[name]
        if single.dtype.kind == "f":
            double = value.detach().numpy()
            if recorded.places[name].is_mask:
                single, double = ended(single), ended(double)
            rms = compare(expected=double, actual=single).rms
            # Infinities on both sides leave nothing to measure; no floor then.
            if math.isfinite(rms):
                floors[name] = rms

    outputs = program.run(inputs, measure, double=True)
    for spec, value in zip(component.outputs, outputs, strict=True):
        measure(OUTPUT + spec.name, value)
    return floors
