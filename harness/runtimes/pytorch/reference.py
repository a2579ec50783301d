"""Run the reference: PyTorch's unmodified module, its program, and its noise.

The module itself gives the outputs. It is run twice, to see that its outputs repeat.
The program that the exporter translated gives the values in between. The program is
then run in float64; the distance of float32 from that is each value's noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from harness.core.case import Component
from harness.core.contract import unfreeze
from harness.core.errors import RefusedError, StageError, first_line
from harness.core.outcome import Outcome
from harness.measure.align import MASKED, shown
from harness.measure.compare import compare
from harness.measure.named_arrays import Arrays, Run
from harness.measure.trace import OUTPUT, Trace, TraceWriter, open_trace
from harness.measure.unread import other_padding, taken_out
from harness.recipes import uses
from harness.runtimes.pytorch.export_errors import place_of
from harness.runtimes.pytorch.floors import (
    FEW,
    convolves,
    floor_of,
    other_convolutions,
    redraw,
)
from harness.runtimes.pytorch.patch import judged_patch
from harness.runtimes.pytorch.program import (
    Program,
    as_array,
    as_tuple,
    repeats,
)
from harness.runtimes.pytorch.state import State


def check_reference(
    module: torch.nn.Module,
    component: Component,
    inputs: Mapping[str, np.ndarray],
    device: str = "cpu",
) -> tuple[torch.Tensor, ...]:
    """Run the module twice and return its outputs, if it may serve as reference.

    Raises:
        StageError: The module is in train mode, changes its inputs, returns other
            outputs the second time, or lacks outputs of the component.

    """
    check_mode(module, component)
    tensors = {
        name: torch.tensor(value, device=device) for name, value in inputs.items()
    }
    state = State(module)
    with torch.no_grad():
        try:
            first = as_tuple(module(*tensors.values()))
        except Exception as error:  # a network may raise anything
            _refuse_memory(component, error)
            raise _refused(component, _sizes(component, inputs), error) from error
        first = tuple(value.clone() for value in first)
        for name, value in tensors.items():
            if not np.array_equal(value.cpu().numpy(), inputs[name]):
                refuse_changed_input(component, name)
        second = as_tuple(module(*tensors.values()))
    check_count(component, len(first))
    for spec, one, two in zip(component.outputs, first, second, strict=True):
        if not repeats(one, two):
            gap = (one.double() - two.double()).abs().nan_to_num(math.inf).max().item()
            _refuse_state(component, module, state, tensors, first)
            _unsound(
                f"{component.name} is random: two runs on the same inputs differ in "
                f"{spec.name!r} by up to {gap:.3e}; take the mode, not a sample."
            )
    return first


def _refuse_state(
    component: Component,
    module: torch.nn.Module,
    state: State,
    inputs: Mapping[str, torch.Tensor],
    first: Sequence[torch.Tensor],
) -> None:
    """Refuse a module that changes itself, if its outputs repeat without the change."""
    changed = state.changed()
    if not changed:
        return
    state.restore()
    with torch.no_grad():
        again = as_tuple(module(*inputs.values()))
    if not all(map(repeats, first, again)):
        return
    kind, name = changed[0]
    more = f", and {len(changed) - 1} more" if changed[1:] else ""
    _unsound(
        f"{component.name}: it changes its {kind} {name!r} in forward{more}, so the "
        "next run on the same inputs gives other outputs; make it an input and an "
        "output."
    )


def _refused(component: Component, sizes: str, error: Exception) -> RefusedError:
    why, place = first_line(error), place_of([error])
    where = f" ({place})" if place else ""
    msg = (
        f"{component.name}: PyTorch itself cannot run with {sizes}: {why}{where}. If "
        "the network cannot take these sizes, correct [[shapes]] in parity.toml."
    )
    return RefusedError(msg, why=why, outcome=Outcome.REFERENCE)


def check_mode(module: torch.nn.Module, component: Component) -> None:
    """Refuse a module in train mode: dropout is random, normalisation has state.

    Raises:
        StageError: The module or one of its submodules is in train mode.

    """
    training = [name or "all of it" for name, m in module.named_modules() if m.training]
    if training:
        _unsound(
            f"{component.name} is in train mode ({training[0]} and "
            f"{len(training) - 1} more); call .eval() where it is built."
        )


def check_count(component: Component, count: int) -> None:
    """Refuse a module whose number of outputs is not the recipe's.

    Raises:
        StageError: The numbers differ.

    """
    if count != len(component.outputs):
        names = ", ".join(spec.name for spec in component.outputs)
        _unsound(
            f"{component.name} returns {count} tensors, its recipe promises "
            f"{len(component.outputs)}: {names}."
        )


def refuse_changed_input(component: Component, name: str) -> None:
    """Refuse a module that writes to one of its inputs.

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
    """Return a module as a function from arrays to arrays, both by name."""
    module.to(device)

    def run(feeds: Arrays) -> Arrays:
        given = [torch.tensor(feeds[s.name], device=device) for s in component.inputs]
        with torch.no_grad():
            made = as_tuple(module(*given))
        return {
            spec.name: as_array(value).copy()
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
    wanted: Collection[str] | None = None,
    patch: str = "",
) -> dict[str, object]:
    """Write the trace of one sample to `folder`, and return facts about the run.

    The program is that of the unmodified module, or of a copy made to be exportable.
    `wanted` names the program's values to record; it means all when left out. `patch`
    names the patch of that copy.

    Returns:
        ``values``, the number of recorded values; ``rewrite_max_abs``, the largest
        difference between the program's outputs and the module's, 0 when nothing had
        to be rewritten; with a patch also ``patch_floors``, the largest such difference
        in noise floors.

    Raises:
        StageError: The module cannot serve as a reference, or a patch changes it.

    """
    module.to(device)
    program.place(device)
    outputs = check_reference(module, component, inputs, device)
    writer = TraceWriter(folder)
    for name, output in named_outputs(component, outputs).items():
        writer.add(name, output)
    tensors = tuple(torch.tensor(value, device=device) for value in inputs.values())

    def record(name: str, value: torch.Tensor) -> None:
        if wanted is None or name in wanted:
            floating = value.is_floating_point() and value.numel() > 0
            is_mask = floating and bool((value.abs() > MASKED).any())
            writer.add(name, as_array(value), is_mask=is_mask)

    try:
        rewritten = program.run(tensors, record)
    except (RuntimeError, ValueError, IndexError) as error:
        _refuse_memory(component, error)
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
    if wanted is None or wanted:
        _record_unread(writer, program, component, inputs, rewritten)
    for name, rows in taken_out(component, inputs).items():
        shape = writer.view().places[OUTPUT + name].shape
        writer.add_unread(OUTPUT + name, np.broadcast_to(rows, shape))
    noise = _Noise(program, tensors, component, writer.view())
    floors = noise.floors(rewritten, folder, on_cpu=device == "cpu")
    found: dict[str, object] = {"rewrite_max_abs": gap}
    if patch:
        found["patch_floors"] = judged_patch(
            component, patch, outputs, rewritten, floors
        )
    return {"values": writer.close(floors), **found}


def _record_unread(
    writer: TraceWriter,
    program: Program,
    component: Component,
    inputs: Arrays,
    outputs: Sequence[torch.Tensor],
) -> None:
    """Record which places of the program's values are made of padding.

    These are the places that change where a mask takes the inputs out. If what is read
    of an output changes too, the mask hides nothing, and no place is recorded.
    """
    other = other_padding(component, inputs)
    if other is None:
        return
    device = outputs[0].device
    recorded, rows = writer.view(), taken_out(component, inputs)
    unread: dict[str, np.ndarray] = {}

    def note(name: str, value: torch.Tensor) -> None:
        if name not in recorded:
            return
        changed = _changed(recorded[name], as_array(value))
        if changed is not None and changed.any() and not changed.all():
            unread[name] = np.packbits(changed)

    tensors = tuple(torch.tensor(value, device=device) for value in other.values())
    try:
        made = program.run(tensors, note)
    except (RuntimeError, ValueError, IndexError):
        return
    for spec, one, two in zip(component.outputs, outputs, made, strict=True):
        changed = _changed(as_array(one), as_array(two))
        if changed is None or (changed & ~rows.get(spec.name, np.False_)).any():
            return
    for name, bits in unread.items():
        shape = recorded.places[name].shape
        found = np.unpackbits(bits, count=math.prod(shape)).view(np.bool_)
        writer.add_unread(name, found.reshape(shape))


def _changed(one: np.ndarray, two: np.ndarray) -> np.ndarray | None:
    """Return where two values differ; None where their shapes do. NaN equals NaN."""
    if one.shape != two.shape:
        return None
    different = one != two
    if one.dtype.kind in "fc":
        different &= ~(np.isnan(one) & np.isnan(two))
    return np.asarray(different)


def _refuse_memory(component: Component, error: Exception) -> None:
    """Refuse a lack of memory, which PyTorch raises as an error of many kinds."""
    if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
        msg = f"{component.name}: PyTorch has too little memory: {first_line(error)}."
        raise StageError(msg, outcome=Outcome.MEMORY) from error


def _sizes(component: Component, inputs: Mapping[str, np.ndarray]) -> str:
    """Return ``batch = 3, height = 17``."""
    bound = _bound(component, inputs)
    return ", ".join(f"{symbol} = {size}" for symbol, size in bound.items())


def _bound(component: Component, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    return component.sizes({name: value.shape for name, value in inputs.items()})


def _largest_gap(one: torch.Tensor, two: torch.Tensor) -> float:
    """Return the largest difference where both tensors are finite.

    Judges see elements that are not finite.
    """
    finite = one.isfinite() & two.isfinite()
    gaps = (one.double() - two.double()).abs()[finite]
    return float(gaps.max()) if gaps.numel() else 0.0


Values = Callable[[str], np.ndarray]
"""A function that returns a value of a float32 run by its name in a trace."""


@dataclass(frozen=True, slots=True)
class _Noise:
    """Measures how far float32 runs of a program are from a run in float64."""

    program: Program
    inputs: tuple[torch.Tensor, ...]
    component: Component
    recorded: Trace

    def floors(
        self, rewritten: tuple[torch.Tensor, ...], folder: Path, *, on_cpu: bool
    ) -> dict[str, float]:
        """Return each recorded value's noise floor, in its own unit.

        An output's floor comes from the program's own output. If it came from the
        module's, a wrong rewrite of the program would raise the floor by which the
        rewrite is judged.

        `rewritten` has the outputs of the program in float32. A second run's values are
        kept in the trace's `folder` for a while.
        """
        runs = [self._values(rewritten, self.recorded)]
        with ExitStack() as stack:
            if on_cpu and convolves(self.program.probes):
                # In the folder, because a sweep of the store removes what lies beside
                # it and belongs to no entry.
                scratch = stack.enter_context(TemporaryDirectory(dir=folder))
                with other_convolutions():
                    runs.append(self._second(Path(scratch)))
            squares, few = self._errors(runs)
        draws: dict[str, list[float]] = {}
        inside = {name for name in few if not name.startswith(OUTPUT)}
        drawn = redraw(
            self.program.run,
            self.inputs,
            inside,
            lambda made: named_outputs(self.component, made),
            whole=len(inside) < len(few),
        )
        for draw in drawn if few else ():
            for name, double in few.items():
                found = self._mean_square(name, draw[name], double)
                draws.setdefault(name, []).extend(found)
        return {
            name: floor_of(found, draws.get(name, ()), self.recorded[name].size)
            for name, found in squares.items()
            if found
        }

    def _errors(
        self, runs: Sequence[Values]
    ) -> tuple[dict[str, list[float]], dict[str, np.ndarray]]:
        """Return each run's mean squared errors, and values of few elements."""
        squares: dict[str, list[float]] = {}
        few: dict[str, np.ndarray] = {}

        def measure(name: str, double: np.ndarray) -> None:
            if name not in self.recorded or self.recorded[name].dtype.kind != "f":
                return
            squares[name] = [
                square
                for run in runs
                for square in self._mean_square(name, run(name), double)
            ]
            if double.size < FEW and squares[name]:
                few[name] = double

        outputs = self._run(measure, double=True)
        for name, double in named_outputs(self.component, outputs).items():
            measure(name, double)
        return squares, few

    def _second(self, folder: Path) -> Values:
        """Run the program once more in float32, its values on disk."""
        writer = TraceWriter(folder)

        def keep(name: str, value: np.ndarray) -> None:
            if name in self.recorded:
                writer.add(name, value)

        outputs = self._run(keep)
        writer.close({})
        return self._values(outputs, open_trace(folder))

    def _values(self, outputs: tuple[torch.Tensor, ...], rest: Trace) -> Values:
        named = named_outputs(self.component, outputs)
        return lambda name: named[name] if name in named else rest[name]

    def _run(
        self, on_value: Callable[[str, np.ndarray], None], *, double: bool = False
    ) -> tuple[torch.Tensor, ...]:
        def seen(name: str, value: torch.Tensor) -> None:
            on_value(name, as_array(value))

        return self.program.run(self.inputs, seen, double=double)

    def _mean_square(
        self, name: str, single: np.ndarray, double: np.ndarray
    ) -> list[float]:
        """Return a mean squared error; an empty list where it cannot be measured.

        Where all elements are infinite on both sides, the value has no floor.
        """
        is_mask = self.recorded.places[name].is_mask
        double, single = shown(double, single, is_mask=is_mask)
        rms = compare(expected=double, actual=single).rms
        return [rms**2] if math.isfinite(rms) else []


def named_outputs(
    component: Component, outputs: tuple[torch.Tensor, ...]
) -> dict[str, np.ndarray]:
    """Return outputs, and values that are read from them, by their names in a trace."""
    arrays = {
        spec.name: as_array(value)
        for spec, value in zip(component.outputs, outputs, strict=True)
    }
    return {
        OUTPUT + n: value for n, value in {**arrays, **uses(component, arrays)}.items()
    }
