"""Decide which value of a candidate corresponds to which value of the program.

This module has every rule. A value is matched by exact name or by one of these rules,
and never because two values look similar. A value that no rule matches counts as
unmatched.

==================  ==========================================================
``exact``           The exporter named the value after the program's.
``output``          A graph output was renamed to the component's output name.
``merged``          The same operator on the same values, kept once.
``leaving``         Several values were made for an operator (dynamo) or inside a
                    module (TorchScript), and only this one is read outside it. With
                    dynamo it must also have the shape of the operator's result.
``unchanged``       An operator of the graph that changes nothing, such as a division
                    by one, carries the value before it.
``made``            An MNN operator has the name of one value and makes another: it
                    also computes a ReLU, or a change of layout was moved behind it.
                    The MNN file says which (`runtimes.mnn.file.values_made`).
``matmul``          MNN turned a product with constant weights into a 1x1 convolution:
                    ``NAME__matmul_converted``, ``[rows, n, 1, 1]``. Values computed
                    from it element by element may keep that shape.
``last axis``       MNN adds a last axis of size one before an element-wise operator,
                    and the graph adds it after that operator.
``truth``           MNN stores booleans as int32: 0 and 1 are read as false and true.
``mask``            A value with numbers beyond `MASKED` masks a softmax. Such a number
                    means only "far below", so both sides are cut at `MASK_END`.
                    Where both sides mask, both count as 0: a mask says nothing about
                    the scores beside it, and its size would hide their error.
==================  ==========================================================
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.core.probes import Probe, ValueKind

MATMUL = "__matmul_converted"
"""Suffix that MNN's converter gives to a product that it turned into a convolution."""


MASKED = 1e30
"""Magnitude above which a number must be a constant of a softmax mask. No activation is
so large."""

_CONV_AXES = 4

MASK_END = 6e4
"""Magnitude at which masks are cut on both sides. float16 can hold it, and it is far
beyond any softmax input."""

_WEAKEST = 9e3
"""Smallest magnitude of a mask, which is often -10000."""

_FAR = 100.0
"""Smallest ratio between a mask and the largest score beside it."""

_OFTEN = 1 / 128
"""Smallest share of a value that a mask takes. A single activation may be as large."""

_ALIKE = 0.01
"""Largest share by which two masks differ where a score is added to each."""

Axes = tuple[int | None, ...]
"""Sizes of a value's axes; None for an open one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphValue:
    """One value of an exported graph.

    Attributes:
        name: Name of the value.
        origin: The program's value (dynamo) or the module's path (TorchScript) for
            which it was made; empty if the exporter did not record it.
        used_by: Origins of the nodes that read the value.
        is_output: Whether the value is an output of the graph.
        is_constant: Whether the value depends only on weights and sizes.
        repeats: Name of the value that this one passes on unchanged; empty if it is a
            new value.
        shape: Its axes, with None for an open one; None if the file does not say.
        is_turned: Whether the nodes of its origin change the order of axes, and none
            changes it back for this value.

    """

    name: str
    origin: str
    used_by: tuple[str, ...]
    is_output: bool
    is_constant: bool = False
    repeats: str = ""
    shape: Axes | None = None
    is_turned: bool = False


def link(
    probes: Sequence[Probe],
    values: Sequence[GraphValue],
    outputs: Mapping[str, str],
    shapes: Mapping[str, Axes] | None = None,
) -> list[Probe]:
    """Return each probe with the name of the exported value that holds it.

    The `onnx` of a duplicate names the original. `outputs` maps each program value that
    is an output of the graph to its output name. `shapes` gives the axes of the
    program's values, with None for an open one: a value inside the translation of an
    operator is its result only if it can have the result's shape.
    """
    names = {value.name for value in values}
    repeats = {value.name: value.repeats for value in values if value.repeats}
    leaving = _leaving(values)
    taken: set[str] = set()

    def carrier(probe: Probe) -> str:
        name = probe.onnx if probe.kind is ValueKind.DUPLICATE else probe.name
        if name in names:
            return name
        if name in outputs:
            return outputs[name]
        left = [
            value.name
            for value in leaving.get(name, [])
            if not value.is_constant and _may_be_result(value, shapes, name)
        ]
        one = len({repeats.get(value, value) for value in left}) == 1
        return left[0] if one and probe.kind is not ValueKind.MOVE else ""

    def linked(probe: Probe) -> Probe:
        found = carrier(probe)
        name, made = repeats.get(found, found), leaving.get(probe.name)
        kind = probe.kind
        if kind is ValueKind.COMPUTE:
            if name != found and name in taken:
                kind = ValueKind.IDENTITY
            elif made and not name and all(value.is_constant for value in made):
                kind = ValueKind.CONSTANT
            taken.add(name)
        return replace(probe, onnx=name, kind=kind)

    return [linked(probe) for probe in probes]


def _may_be_result(
    value: GraphValue, shapes: Mapping[str, Axes] | None, name: str
) -> bool:
    """Whether a value can be the result of the operator that it was made for."""
    if shapes is None:
        return True
    shape, theirs = shapes.get(name), value.shape
    if shape is None or theirs is None:
        return not value.is_turned
    alike = (
        None in {one, two} or one == two
        for one, two in zip(shape, theirs, strict=False)
    )
    return len(shape) == len(theirs) and not value.is_turned and all(alike)


def _leaving(values: Sequence[GraphValue]) -> dict[str, list[GraphValue]]:
    """Return, for each origin, its values that are read outside it."""
    leaving: dict[str, list[GraphValue]] = {}
    for value in values:
        inside = f"{value.origin}."
        outside = any(
            user != value.origin and not user.startswith(inside)
            for user in value.used_by
        )
        if value.origin and (outside or value.is_output):
            leaving.setdefault(value.origin, []).append(value)
    return leaving


def wanted_values(probes: Iterable[Probe]) -> dict[str, Probe]:
    """Return the probe with which each exported value is compared.

    Views and constants are also compared if the exporter kept their names. A computed
    value comes before a value that only passes it on.
    """
    probes = tuple(probes)
    wanted = {
        probe.onnx: probe
        for probe in probes
        if probe.onnx and probe.kind is ValueKind.COMPUTE
    }
    for probe in probes:
        if probe.onnx == probe.name and probe.kind is not ValueKind.DUPLICATE:
            wanted.setdefault(probe.onnx, probe)
    return wanted


def source_value(name: str) -> str:
    """Return the exported value that a runtime's value `name` holds."""
    return name.removesuffix(MATMUL)


def same_axes(shape: Sequence[int], expected: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape in which to read a value, or None if its axes differ.

    Two rules may change the shape, and neither changes the order. By ``matmul``,
    ``[rows, n, 1, 1]`` holds the rows of ``[..., n]``. By ``last axis``,
    ``[..., n, 1]`` holds ``[..., n]``.
    """
    actual, wanted = tuple(shape), tuple(expected)
    if actual in {wanted, (*wanted, 1)}:
        return wanted
    if len(actual) != _CONV_AXES or not 0 < len(wanted) < _CONV_AXES:
        return None
    return wanted if actual == (math.prod(wanted[:-1]), wanted[-1], 1, 1) else None


def read_as(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return `actual` with the reference's kind of number, by the ``truth`` rule."""
    is_truth = expected.dtype.kind == "b" and actual.dtype.kind in "iu"
    if is_truth and not ((actual != 0) & (actual != 1)).any():
        return actual.astype(np.bool_)
    return actual


def ended(value: np.ndarray) -> np.ndarray:
    """Return a mask's values cut at `MASK_END`; NaN and infinities are kept."""
    return np.where(np.isfinite(value), np.clip(value, -MASK_END, MASK_END), value)


def shown(
    expected: np.ndarray, actual: np.ndarray, *, is_mask: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return two values of one shape with 0 where both mask a softmax.

    A mask alone, without scores, is only cut. `is_mask` says that the value has numbers
    beyond `MASKED`. A mask of smaller numbers, such as -1e9, is recognised by its
    distance from all scores.
    """
    if is_mask:
        expected, actual = ended(expected), ended(actual)
    hides = _masked(expected, is_mask=is_mask)
    if hides is None or expected.shape != actual.shape:
        return expected, actual
    with np.errstate(invalid="ignore"):
        apart = np.abs(actual - expected)
        alike = hides & (apart <= _ALIKE * np.abs(expected))
    return np.where(alike, 0, expected), np.where(alike, 0, actual)


def _masked(value: np.ndarray, *, is_mask: bool) -> np.ndarray | None:
    """Return where a value masks a softmax; None if it does not, or has no scores."""
    if value.dtype.kind != "f" or not value.size or value.min() > -_WEAKEST:
        return None
    finite = np.isfinite(value)
    hides = np.abs(value) == MASK_END if is_mask else finite & (value <= -_WEAKEST)
    scores = np.abs(value[finite & ~hides])
    largest = float(scores.max(initial=0.0))
    if not largest or not hides.any():
        return None
    far = is_mask or -float(value[hides].max()) >= _FAR * largest
    return hides if far and (is_mask or hides.mean() >= _OFTEN) else None


def coverage_of(
    probes: Sequence[Probe],
    compared: Collection[str],
    read_into: Mapping[str, Collection[str]],
    outputs: Collection[str] = (),
    *,
    is_foreign: bool = False,
    in_file: Collection[str] | None = None,
    operators: int = 0,
) -> dict[str, Any]:
    """Count the computing operators that were compared in a run, as a record holds it.

    An operator counts as compared if its value was compared, or if all values that are
    computed directly from it count as compared. Those are values of the exported graph,
    or of the program where the graph does not have the operator. Of operators that the
    deployed file still has, or may still have, and whose value was not shown, at most
    four count for five whose value was compared.

    Args:
        probes: Values of the program, in order.
        compared: Exported values that were compared.
        read_into: Each exported value, to the values that are computed directly from
            it.
        outputs: Outputs of the graph, which are compared in a check of their own.
        is_foreign: Whether somebody else exported the graph. A value without a
            counterpart is then no fault of a runtime, and is not counted at all.
        in_file: Values that the operators of the deployed file make; None if the
            runtime does not tell.
        operators: Number of nodes of the graph that compute something. A program
            without any computing operator is compared whole only if there is none: a
            module without submodules has none either.

    Returns:
        ``computing``: operators that compute something from the inputs. ``aligned``:
        those whose value was compared. ``fused``: those that the exported graph has and
        the runtime no longer ran; ``inside``: those of them that count as compared.
        ``unmatched``: those without a counterpart in the exported graph. ``seen``: all
        that count as compared. ``reach``: all that are counted. ``missing``: names of
        those that do not count as compared, in order.

    """
    computing = [
        p for p in probes if p.kind in {ValueKind.COMPUTE, ValueKind.DUPLICATE}
    ]
    unmatched = [p for p in computing if not p.onnx]
    fused = [p for p in computing if p.onnx and p.onnx not in compared]
    shown = _shown(read_into, {*compared, *outputs})
    counted = {p.name for p in probes if p.onnx in shown}
    inside = [p for p in fused if p.name in counted]
    if not is_foreign:
        counted |= _read_alone(probes, counted)
    reached = [p for p in computing if p.onnx or not is_foreign]
    missing = tuple(p.name for p in reached if p.name not in counted)
    aligned = len(computing) - len(unmatched) - len(fused)
    # What the file no longer has was fused into what it shows. A runtime that shows
    # only every second value of what the file has, or may have, has lost the others.
    hidden = [p for p in inside if in_file is None or p.onnx in in_file]
    beyond = max(0, len(hidden) - max(1, 4 * aligned // 5))
    return {
        "computing": len(computing),
        "aligned": aligned,
        "fused": len(fused),
        "inside": len(inside),
        "unmatched": len(unmatched),
        "seen": len(reached) - len(missing) - beyond,
        "reach": len(reached) if computing else operators,
        "missing": missing,
    }


def _read_alone(probes: Sequence[Probe], counted: Collection[str]) -> set[str]:
    """Return values without a counterpart that only counted values read.

    A reader that computes nothing and was not compared, such as a view, is passed over:
    its own readers name the same value as their parent.
    """
    found: set[str] = set()
    readers: dict[str, list[bool]] = {}
    alike: dict[str, str] = {}
    for probe in sorted(probes, key=lambda one: one.position, reverse=True):
        computes = probe.kind in {ValueKind.COMPUTE, ValueKind.DUPLICATE}
        read = readers.get(probe.name, ())
        if computes and not probe.onnx and read and all(read):
            found.add(probe.name)
        counts = probe.name in counted or probe.name in found
        if counts or computes:
            for parent in probe.parents:
                readers.setdefault(parent, []).append(counts)
    for probe in probes:  # an operator that repeats another one has its readers
        told = repr((probe.op, probe.settings, probe.arguments))
        if probe.kind is ValueKind.DUPLICATE and alike.get(told) in found:
            found.add(probe.name)
        elif probe.arguments:
            alike.setdefault(told, probe.name)
    return found


def _shown(read_into: Mapping[str, Collection[str]], ends: Collection[str]) -> set[str]:
    """Return `ends`, and the values that are read by nothing but such values.

    A value that nothing reads, such as the second output of a normalisation, is no
    reader.
    """
    waiting = {
        name: {r for r in readers if r in ends or read_into.get(r)}
        for name, readers in read_into.items()
        if name not in ends
    }
    made_from: dict[str, list[str]] = {}
    for name, readers in waiting.items():
        for reader in readers:
            made_from.setdefault(reader, []).append(name)
    shown, new = set(ends), list(ends)
    while new:
        reader = new.pop()
        for name in made_from.get(reader, ()):
            waiting[name].discard(reader)
            if not waiting[name] and name not in shown:
                shown.add(name)
                new.append(name)
    return shown
