"""Run the reference: PyTorch's unmodified module, its program, and its noise.

The module itself gives the outputs, and is run twice to see that it may serve. The
program, which is what the exporter translated, gives the values in between. Both are
then run in float64; how far float32 is from that is each value's noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import torch

from harness.align import MASKED, ended
from harness.calls import Arrays, Run
from harness.compare import compare
from harness.components import uses
from harness.contract import unfreeze
from harness.errors import StageError, first_line
from harness.floors import FEW, floor_of, redraw
from harness.outcome import Outcome
from harness.program import Program, as_tuple
from harness.spec import Component
from harness.trace import OUTPUT, Trace, TraceWriter


def check_reference(
    module: torch.nn.Module,
    component: Component,
    inputs: Mapping[str, np.ndarray],
    device: str = "cpu",
    *,
    twice: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Run the module and return its outputs, if it may serve as reference.

    Args:
        module: The unmodified module.
        component: What it promises.
        inputs: One sample, by name, in order.
        device: Where it runs.
        twice: Whether to run it again, to see that it is not random.

    Raises:
        StageError: It is in train mode, changes its inputs, gives two answers, or
            does not return the outputs that the component promises.

    """
    check_mode(module, component)
    tensors = {
        name: torch.tensor(value, device=device) for name, value in inputs.items()
    }
    with torch.no_grad():
        try:
            first = as_tuple(module(*tensors.values()))
        except (RuntimeError, ValueError, IndexError) as error:
            _unsound(
                f"{component.name}: PyTorch itself cannot run with "
                f"{_sizes(component, inputs)}: {first_line(error)}. If the network "
                "cannot take these sizes, correct [[shapes]] in parity.toml."
            )
        first = tuple(value.clone() for value in first)
        for name, value in tensors.items():
            if not np.array_equal(value.cpu().numpy(), inputs[name]):
                refuse_changed_input(component, name)
        second = as_tuple(module(*tensors.values())) if twice else first
    check_count(component, len(first))
    for spec, one, two in zip(component.outputs, first, second, strict=True):
        if not torch.equal(one, two) and not (one.isnan() | two.isnan()).any():
            gap = (one.double() - two.double()).abs().max().item()
            _unsound(
                f"{component.name} is random: two runs on the same inputs differ in "
                f"{spec.name!r} by up to {gap:.3e}; take the mode, not a sample."
            )
    return first


def check_mode(module: torch.nn.Module, component: Component) -> None:
    """Refuse a module in train mode: dropout draws, and normalisation remembers.

    Raises:
        StageError: It, or a part of it, is in train mode.

    """
    training = [name or "all of it" for name, m in module.named_modules() if m.training]
    if training:
        _unsound(
            f"{component.name} is in train mode ({training[0]} and "
            f"{len(training) - 1} more); call .eval() where it is built."
        )


def check_count(component: Component, count: int) -> None:
    """Refuse another number of outputs than the recipe promises.

    Raises:
        StageError: It is another.

    """
    if count != len(component.outputs):
        names = ", ".join(spec.name for spec in component.outputs)
        _unsound(
            f"{component.name} returns {count} tensors, its recipe promises "
            f"{len(component.outputs)}: {names}."
        )


def refuse_changed_input(component: Component, name: str) -> None:
    """Say that a module writes to one of its inputs.

    Raises:
        StageError: Always.

    """
    _unsound(
        f"{component.name} changes its input {name!r} in place, so the next run sees "
        "other numbers; clone it in forward."
    )


def _unsound(message: str) -> None:
    raise StageError(message, outcome=Outcome.REFERENCE)


def run_of(module: torch.nn.Module, component: Component, device: str) -> Run:
    """Return a module as what takes and gives arrays by name."""
    module.to(device)

    def run(feeds: Arrays) -> Arrays:
        given = [torch.tensor(feeds[s.name], device=device) for s in component.inputs]
        with torch.no_grad():
            made = as_tuple(module(*given))
        return {
            spec.name: value.cpu().numpy().copy()
            for spec, value in zip(component.outputs, made, strict=True)
        }

    return run


def record_reference(  # one run's whole circumstances
    module: torch.nn.Module,
    program: Program,
    component: Component,
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    *,
    device: str,
    layers: bool,
    wanted: Collection[str] | None = None,
    twice: bool = True,
) -> dict[str, object]:
    """Write the trace of one sample to `folder`, and return what was seen.

    Args:
        module: The unmodified module.
        program: Its program, perhaps of a copy made to be exportable.
        component: Names of the outputs.
        inputs: One sample, by name, in order.
        folder: Empty; gets the trace's two files.
        device: Where PyTorch runs, ``cpu`` or ``cuda``.
        layers: Whether to record the program's values, or outputs alone.
        wanted: Which of the program's values; all when left out.
        twice: Whether to run the module again, to see that it is not random.

    Returns:
        ``values``, how many were recorded; ``rewrite_max_abs``, how far the program's
        outputs are from the module's, 0 when nothing had to be rewritten.

    Raises:
        StageError: The module may not serve as a reference.

    """
    module.to(device)
    program.place(device)
    outputs = check_reference(module, component, inputs, device, twice=twice)
    writer = TraceWriter(folder)
    for name, output in _named(component, outputs).items():
        writer.add(name, output)
    tensors = tuple(torch.tensor(value, device=device) for value in inputs.values())

    def record(name: str, value: torch.Tensor) -> None:
        if layers and (wanted is None or name in wanted):
            floating = value.is_floating_point() and value.numel() > 0
            is_mask = floating and bool((value.abs() > MASKED).any())
            writer.add(name, value.detach().cpu().numpy(), is_mask=is_mask)

    try:
        rewritten = program.run(tensors, record)
    except (RuntimeError, ValueError, IndexError) as error:
        msg = (
            f"{component.name}: what was exported cannot run with "
            f"{_sizes(component, inputs)}, where the network itself can "
            f"({first_line(error)}), so a size is fixed in it: "
            f"{unfreeze(component, list(_bound(component, inputs)))}"
        )
        raise StageError(msg, outcome=Outcome.FROZEN) from error
    gap = max(
        _largest_gap(one, two) for one, two in zip(outputs, rewritten, strict=True)
    )
    floors = _noise(program, tensors, writer.view(), component, rewritten)
    return {"values": writer.close(floors), "rewrite_max_abs": gap}


def _sizes(component: Component, inputs: Mapping[str, np.ndarray]) -> str:
    """Return ``batch = 3, height = 17``."""
    bound = _bound(component, inputs)
    return ", ".join(f"{symbol} = {size}" for symbol, size in bound.items())


def _bound(component: Component, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    return component.sizes({name: value.shape for name, value in inputs.items()})


def _largest_gap(one: torch.Tensor, two: torch.Tensor) -> float:
    """Return the largest difference where both are finite; judges see the others."""
    finite = one.isfinite() & two.isfinite()
    gaps = (one.double() - two.double()).abs()[finite]
    return float(gaps.max()) if gaps.numel() else 0.0


def _noise(
    program: Program,
    inputs: tuple[torch.Tensor, ...],
    recorded: Trace,
    component: Component,
    rewritten: tuple[torch.Tensor, ...],
) -> dict[str, float]:
    """Run in float64 and return each recorded value's noise floor, in its own unit.

    An output's floor is that of the program's own output: compared with the module's, a
    program that was rewritten wrongly would raise the floor it is judged by.
    """
    own = _named(component, rewritten)
    squares: dict[str, list[float]] = {}
    few: dict[str, np.ndarray] = {}

    def measure(name: str, double: np.ndarray) -> None:
        single = own.get(name, recorded[name])
        if single.dtype.kind == "f":
            squares[name] = _mean_square(recorded, name, single, double)
            if single.size < FEW and squares[name]:
                few[name] = double

    def seen(name: str, value: torch.Tensor) -> None:
        if name in recorded:
            measure(name, value.detach().cpu().numpy())

    outputs = program.run(inputs, seen, double=True)
    for name, double in _named(component, outputs).items():
        measure(name, double)
    if few:
        for draw in redraw(
            program.run,
            inputs,
            {name for name in few if not name.startswith(OUTPUT)},
            lambda made: _named(component, made),
            whole=any(name.startswith(OUTPUT) for name in few),
        ):
            for name, double in few.items():
                squares[name] += _mean_square(recorded, name, draw[name], double)
    return {
        name: floor_of(drawn, recorded[name].size)
        for name, drawn in squares.items()
        if drawn
    }


def _mean_square(
    recorded: Trace, name: str, single: np.ndarray, double: np.ndarray
) -> list[float]:
    """Return the mean squared error of a draw; nothing where it cannot be measured.

    Infinities on both sides leave nothing to measure, and there is no floor then.
    """
    if recorded.places[name].is_mask:
        single, double = ended(single), ended(double)
    rms = compare(expected=double, actual=single).rms
    return [rms**2] if math.isfinite(rms) else []


def _named(
    component: Component, outputs: tuple[torch.Tensor, ...]
) -> dict[str, np.ndarray]:
    """Return outputs, and what is read from them, by their names in a trace."""
    arrays = {
        spec.name: value.detach().cpu().numpy()
        for spec, value in zip(component.outputs, outputs, strict=True)
    }
    return {
        OUTPUT + n: value for n, value in {**arrays, **uses(component, arrays)}.items()
    }
