"""Say which of a candidate's values is which of the program's.

Every rule stands here. A value is matched by exact name or by one of these rules,
never by resemblance; what no rule matches is counted as unmatched.

==================  ==========================================================
``exact``           The exporter named the value after the program's.
``output``          A graph output was renamed to the component's output name.
``merged``          The same operator on the same values, kept once.
``leaving``         The one value of several that were made for an operator (dynamo)
                    or inside a module (TorchScript) that is read outside it.
``unchanged``       An operator of the graph that changes nothing, such as a division
                    by one, carries the value before it.
``made``            An operator of MNN's that has one value's name makes another: it
                    computes a ReLU as well, or a change of layout was moved behind
                    it. Its file says which (`runtimes.mnn.file.values_made`).
``matmul``          MNN made a 1x1 convolution of a product with constant
                    weights: ``NAME__matmul_converted``, ``[rows, n, 1, 1]``.
                    What is computed from it element by element may keep that form.
``last axis``       MNN gives a value its new last axis, of size one, before an operator
                    element by element where the graph does so after it.
``truth``           MNN holds booleans as int32: 0 and 1 are read as such.
``mask``            A value with numbers beyond `MASKED` masks a softmax; there
                    "far below" is all they mean, so both sides end at `MASK_END`.
==================  ==========================================================
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.core.probes import Kind, Probe

MATMUL = "__matmul_converted"
"""Suffix that MNN's converter gives a product it turned into a convolution."""


MASKED = 1e30
"""No activation is so large; only the constants that mask a softmax are."""

_CONV_AXES = 4

MASK_END = 6e4
"""Where masks end on both sides: inside float16, far beyond any softmax input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphValue:
    """One value of an exported graph.

    Attributes:
        name: The value.
        origin: What it was made for: the program's value (dynamo) or the module's
            path (TorchScript); empty if the exporter left no word.
        used_by: Origins of the nodes that read it.
        is_output: Whether it is an output of the graph.
        is_constant: Whether it hangs on weights and sizes alone.
        repeats: The value that it passes on unchanged; empty if it is a new one.

    """

    name: str
    origin: str
    used_by: tuple[str, ...]
    is_output: bool
    is_constant: bool = False
    repeats: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of a program's computing operators a candidate's run showed.

    Attributes:
        computing: Operators that compute something from the inputs.
        aligned: Of these, compared.
        fused: Of these, in the exported graph and gone from what the runtime ran.
        inside: Of the fused, all that is computed from them is computed into one value
            that was compared: an operator does the work of several.
        unmatched: Of these, without a counterpart in the exported graph.
        missing: Names of the fused and unmatched ones, in order.

    """

    computing: int
    aligned: int
    fused: int
    inside: int
    unmatched: int
    missing: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Aligned over computing; 0 when nothing computes."""
        return self.aligned / self.computing if self.computing else 0.0


def link(
    probes: Sequence[Probe],
    values: Sequence[GraphValue],
    outputs: Mapping[str, str],
) -> list[Probe]:
    """Fill in, for each probe, the exported value that carries it.

    Args:
        probes: The program's values; a duplicate's `onnx` names its twin.
        values: The exported graph's values.
        outputs: Program value that is a graph output to the output's name.

    """
    names = {value.name for value in values}
    repeats = {value.name: value.repeats for value in values if value.repeats}
    leaving = _leaving(values)
    taken: set[str] = set()

    def carrier(probe: Probe) -> str:
        name = probe.onnx if probe.kind is Kind.DUPLICATE else probe.name
        if name in names:
            return name
        if name in outputs:
            return outputs[name]
        left = [value.name for value in leaving.get(name, []) if not value.is_constant]
        one = len({repeats.get(value, value) for value in left}) == 1
        return left[0] if one and probe.kind is not Kind.MOVE else ""

    def linked(probe: Probe) -> Probe:
        found = carrier(probe)
        name = repeats.get(found, found)
        kind = probe.kind
        if kind is Kind.COMPUTE:
            if name != found and name in taken:
                kind = Kind.IDENTITY
            elif not name and _all_constant(leaving.get(probe.name, [])):
                kind = Kind.CONSTANT
            taken.add(name)
        return replace(probe, onnx=name, kind=kind)

    return [linked(probe) for probe in probes]


def _leaving(values: Sequence[GraphValue]) -> dict[str, list[GraphValue]]:
    """Return each origin's values that are read outside it."""
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


def _all_constant(values: Sequence[GraphValue]) -> bool:
    return bool(values) and all(value.is_constant for value in values)


def wanted_values(probes: Iterable[Probe]) -> dict[str, Probe]:
    """Return exported value name to the probe that it is compared with.

    Views and constants are compared too where the exporter kept them by their own
    name; a computed value comes before one that merely carries it.
    """
    probes = tuple(probes)
    wanted = {
        probe.onnx: probe
        for probe in probes
        if probe.onnx and probe.kind is Kind.COMPUTE
    }
    for probe in probes:
        if probe.onnx == probe.name and probe.kind is not Kind.DUPLICATE:
            wanted.setdefault(probe.onnx, probe)
    return wanted


def source_value(name: str) -> str:
    """Return the exported value that a runtime's value `name` carries."""
    return name.removesuffix(MATMUL)


def same_axes(shape: Sequence[int], expected: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape to read a value in, or None if its axes are not the same.

    Two rules may change a shape, and neither the order: by ``matmul``
    ``[rows, n, 1, 1]`` holds the rows of ``[..., n]``, by ``last axis`` ``[..., n, 1]``
    holds ``[..., n]``.
    """
    actual, wanted = tuple(shape), tuple(expected)
    if actual in {wanted, (*wanted, 1)}:
        return wanted
    if len(actual) != _CONV_AXES or not 0 < len(wanted) < _CONV_AXES:
        return None
    return wanted if actual == (math.prod(wanted[:-1]), wanted[-1], 1, 1) else None


def read_as(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return `actual` as the reference's kind of value, by the ``truth`` rule."""
    is_truth = expected.dtype.kind == "b" and actual.dtype.kind in "iu"
    if is_truth and not ((actual != 0) & (actual != 1)).any():
        return actual.astype(np.bool_)
    return actual


def ended(value: np.ndarray) -> np.ndarray:
    """Return a mask's values cut at `MASK_END`; NaN and infinities stay."""
    return np.where(np.isfinite(value), np.clip(value, -MASK_END, MASK_END), value)


def coverage_of(
    probes: Sequence[Probe],
    compared: Collection[str],
    read_into: Mapping[str, Collection[str]],
) -> Coverage:
    """Count what a run showed.

    Args:
        probes: The program's values.
        compared: The exported values that were compared.
        read_into: Exported value to those that are computed from it directly.

    """
    computing = [p for p in probes if p.kind in {Kind.COMPUTE, Kind.DUPLICATE}]
    unmatched = [p for p in computing if not p.onnx]
    fused = [p for p in computing if p.onnx and p.onnx not in compared]
    left_out = sorted((*unmatched, *fused), key=lambda probe: probe.position)
    return Coverage(
        computing=len(computing),
        aligned=len(computing) - len(left_out),
        fused=len(fused),
        inside=sum(_ends_in_one(p.onnx, compared, read_into) for p in fused),
        unmatched=len(unmatched),
        missing=tuple(probe.name for probe in left_out),
    )


def _ends_in_one(
    value: str, compared: Collection[str], read_into: Mapping[str, Collection[str]]
) -> bool:
    """Whether all that is computed from `value` goes into one compared value."""
    ends: set[str] = set()
    seen: set[str] = set()
    waiting = [value]
    while waiting and len(ends) < 2:  # noqa: PLR2004  # one is looked for
        readers = read_into.get(waiting.pop(), ())
        if not readers:  # an output that was not compared, or what nobody reads
            return False
        ends.update(name for name in readers if name in compared)
        waiting += [n for n in readers if n not in compared and n not in seen]
        seen.update(readers)
    return len(ends) == 1
