"""Compare a graph's weights and attributes with PyTorch's, without running either.

A weight is paired with the constant that the operator at its place reads, or with the
one of its name; what has neither is looked for by a digest of its bytes. Each pair is
equal bit for bit, or `weight_kinds` says what the stored one is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch
import xxhash
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from harness.align import wanted_values
from harness.attributes import attributes_told, nodes_between
from harness.probes import Kind, Probe
from harness.program import WRAPPER, own_path
from harness.weight_kinds import (
    ANOTHER,
    CHANNELS,
    FEW,
    MOVED,
    OTHER,
    Difference,
    difference,
)

NAMED = 64
"""Differing weights that are kept one by one; of more, the counts are."""

_MATRIX = 2
_UNKNOWN = (OTHER, FEW, MOVED, CHANNELS)
"""Kinds that say less than that a weight is another one of PyTorch's."""

_ADDED = {"weight": False, "bias": True}
_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm", "LayerNormalization")
_BIAS = 2
"""Where these operators take their bias."""

_PASSES_ON = ("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze")
_HELD_BY_OUTPUT = ("aten.linear.", "aten.conv", "aten.embedding.")
_MODULES = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding")
"""Operators and modules whose matrix has a row an output."""


def check_graph(
    module: nn.Module, probes: Sequence[Probe], path: Path
) -> dict[str, Any]:
    """Return what a graph holds and says otherwise than its module, as JSON.

    Args:
        module: In float32.
        probes: With the graph's values that carry them.
        path: Of the ONNX file; weights beside it are read.

    Returns:
        ``tensors``: how many weights PyTorch has; ``equal``: how many of them the graph
        holds bit for bit; ``elsewhere``: names of those that it holds in another form
        or not at all; ``stored``: type of number to how many tensors the file itself
        keeps in it, where that is not float32; ``weights``: those that differ;
        ``differing``: how many those are; ``attributes``: those that differ.

    """
    graph = onnx.load(path, load_external_data=False).graph
    places = _Places(probes, graph)
    held = _Held(path, graph)
    weights = _Weights(module)
    found = [weights.compared(name, held, places) for name in weights.names]
    if any(isinstance(part, _BatchNorm) for part in module.modules()):
        found = list(_without_folded(found))
    differing = [one for one in found if isinstance(one, _Differing)]
    _name_others(differing, weights)
    return {
        "tensors": len(found),
        "equal": found.count(EQUAL),
        "elsewhere": [
            name
            for name, one in zip(weights.names, found, strict=True)
            if one == ELSEWHERE
        ],
        "stored": dict(held.narrow),
        "differing": len(differing),
        "weights": [one.to_json() for one in differing[:NAMED]],
        "attributes": [
            {
                "probe": told.probe.name,
                "module": told.probe.module,
                "op": told.probe.op,
                "name": told.name,
                "words": told.words,
            }
            for told in attributes_told(list(_told(module, probes)), graph)
        ],
    }


def _told(module: nn.Module, probes: Sequence[Probe]) -> Iterator[Probe]:
    """Yield probes; one that stands for a module as the operator that it is."""
    parts = dict(module.named_modules())
    for probe in probes:
        part = parts.get(probe.name)
        match part:
            case nn.LayerNorm():
                op, names = "layer_norm", ("eps", "normalized_shape")
            case nn.GroupNorm():
                op, names = "group_norm", ("eps", "num_groups")
            case nn.Conv1d() | nn.Conv2d():
                op, names = "conv2d", ("groups", "stride", "dilation", "padding")
            case nn.GELU():
                op, names = "gelu", ("approximate",)
            case nn.Softmax():
                op, names = "softmax", ("dim",)
            case _:
                yield probe
                continue
        values = ((name, getattr(part, name)) for name in names)
        settings = tuple(
            (name, list(value) if isinstance(value, tuple) else value)
            for name, value in values
        )
        yield replace(probe, op=f"aten.{op}.default", settings=settings)


EQUAL, ELSEWHERE = "equal", "elsewhere"
NAME, PLACE = "name", "place"


@dataclass(slots=True, kw_only=True)
class _Differing:
    """One weight that differs from the constant that it is paired with."""

    name: str
    constant: str
    by: str
    found: Difference
    told: bytes
    axes: int
    other: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "constant": self.constant,
            "by": self.by,
            "kind": self.found.kind,
            "words": self.found.words,
            "rms": self.found.rms if math.isfinite(self.found.rms) else None,
            "axes": self.axes,
            "other": self.other,
        }


@dataclass(frozen=True, slots=True)
class _Read:
    """A constant as an operator reads it.

    Attributes:
        name: Of the initialiser or the Constant node's value.
        turned: Whether it lies transposed to what PyTorch's operator holds; None
            where the operator does not tell.
        added: Whether the operator adds it, as it does a bias.

    """

    name: str
    turned: bool | None
    added: bool | None = None


class _Places:
    """Which constants are read at each module's place."""

    def __init__(self, probes: Sequence[Probe], graph: onnx.GraphProto) -> None:
        self._makers = {name: node for node in graph.node for name in node.output}
        self._found: dict[str, dict[_Read, None]] = {}
        computed = [
            (value, probe)
            for value, probe in wanted_values(probes).items()
            if probe.kind is Kind.COMPUTE
        ]
        ends = {value for value, _ in computed}
        for value, probe in computed:
            knows = probe.op.startswith(_HELD_BY_OUTPUT) or probe.op in _MODULES
            reads = self._found.setdefault(probe.module, {})
            for node in nodes_between(self._makers, value, ends):
                for one in self._read_by(node):
                    reads[one if knows else replace(one, turned=None)] = None

    def at(self, module: str) -> list[_Read]:
        """Return the constants that a module's operators read."""
        return list(self._found.get(module, ()))

    def _read_by(self, node: onnx.NodeProto) -> Iterator[_Read]:
        if node.op_type in (*_PASSES_ON, "Transpose"):  # who reads that reads through
            return
        for index, given in enumerate(node.input):
            name, turned = given, _turned(node, index)
            last = node.op_type in _WITH_BIAS and index == _BIAS
            added = last or node.op_type in {"Add", "Sub"}
            while (maker := self._makers.get(name)) is not None and maker.input:
                if maker.op_type == "Transpose":
                    turned = None if turned is None else not turned
                elif maker.op_type not in _PASSES_ON:
                    break
                name = maker.input[0]
            yield _Read(name, turned, added)


def _turned(node: onnx.NodeProto, index: int) -> bool | None:
    """Return whether an operator takes a matrix transposed to PyTorch's module."""
    if node.op_type == "MatMul" and index == 1:
        return True
    if node.op_type == "Gemm" and index == 1:
        return not any(a.name == "transB" and a.i for a in node.attribute)
    if (node.op_type, index) in {("Gather", 0), ("Conv", 1)}:
        return False
    return None


class _Held:
    """The constants in float32 that a graph's nodes read, and digests of them."""

    def __init__(self, path: Path, graph: onnx.GraphProto) -> None:
        read = {name for node in graph.node for name in node.input}
        self._arrays: dict[str, np.ndarray] = {}
        self._digests: dict[str, bytes] = {}
        self.narrow: Counter[str] = Counter()
        for name, tensor in _constants(path):
            if name not in read:
                continue
            if tensor.dtype is onnx_ir.DataType.FLOAT:
                # Mapped where it lies in a file beside, so that nothing is copied.
                self._arrays[name] = np.asarray(tensor.numpy()).squeeze()
                self._digests[name] = digest_of(self._arrays[name])
            elif tensor.dtype in _NARROW and tensor.size > 1:
                self.narrow[_NARROW[tensor.dtype]] += 1
        self.digests = frozenset(self._digests.values())

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str) -> np.ndarray:
        """Return a constant's numbers, without axes of one."""
        return self._arrays[name]

    def digest_of(self, name: str) -> bytes:
        """Return a digest of its bytes."""
        return self._digests[name]


def _constants(path: Path) -> Iterator[tuple[str, onnx_ir.TensorProtocol]]:
    graph = onnx_ir.load(path).graph
    for name, value in graph.initializers.items():
        if value.const_value is not None:
            yield name, value.const_value
    for node in graph:
        name = node.outputs[0].name
        if node.op_type == "Constant" and "value" in node.attributes and name:
            yield name, node.attributes["value"].as_tensor()


_NARROW = {
    onnx_ir.DataType.FLOAT16: "float16",
    onnx_ir.DataType.BFLOAT16: "bfloat16",
    onnx_ir.DataType.INT8: "int8",
    onnx_ir.DataType.UINT8: "uint8",
    onnx_ir.DataType.INT4: "int4",
    onnx_ir.DataType.UINT4: "uint4",
}


class _Weights:
    """A module's parameters in float32, by the checkpoint's own names."""

    def __init__(self, module: nn.Module) -> None:
        self._parameters = {
            own_path(name): parameter
            for name, parameter in module.named_parameters()
            if parameter.dtype == torch.float32 and parameter.numel()
        }
        self.names = tuple(self._parameters)
        self._forms: dict[str, dict[bytes, frozenset[bool]]] = {}
        self._siblings: dict[str, list[str]] = {}
        for name in self.names:
            self._siblings.setdefault(_module_of(name), []).append(name)

    def array(self, name: str) -> np.ndarray:
        """Return a parameter's numbers, without axes of one."""
        return np.asarray(self._parameters[name].detach().cpu().numpy()).squeeze()

    def forms(self, name: str) -> Mapping[bytes, frozenset[bool]]:
        """Return digests of a parameter, and whether each is of it transposed."""
        if name not in self._forms:
            array = self.array(name)
            forms = {digest_of(array): frozenset({False})}
            if array.ndim == _MATRIX:
                turned = digest_of(array.T)
                forms[turned] = forms.get(turned, frozenset()) | {True}
            self._forms[name] = forms
        return self._forms[name]

    def compared(self, name: str, held: _Held, places: _Places) -> str | _Differing:
        """Compare one parameter with the constant that stands for it."""
        forms, shape = self.forms(name), self.array(name).shape
        fitting = {
            read.name: read
            for read in places.at(_module_of(name))
            if read.name in held and _fits(shape, held.array(read.name).shape)
            if _ADDED.get(name.rpartition(".")[2], read.added) == read.added
        }
        named = [known for known in fitting if own_path(known) == name]
        for known in named or fitting:
            sides = forms.get(held.digest_of(known))
            if sides and fitting[known].turned in (None, *sides):
                return EQUAL
        siblings = [o for o in self._siblings[_module_of(name)] if o != name]
        theirs = {told for other in siblings for told in self.forms(other)}
        free = [known for known in fitting if held.digest_of(known) not in theirs]
        for pair in (named, free):
            if len(pair) == 1:
                return self._differing(name, fitting[pair[0]], held)
        for known in (name, f"{WRAPPER}.{name}"):
            if known in held and _fits(shape, held.array(known).shape):
                if held.digest_of(known) in forms:
                    return EQUAL
                return self._differing(name, _Read(known, None), held)
        found = any(told in held.digests for told in forms)
        # What is 0 everywhere may be left out: it adds nothing.
        return EQUAL if found or not self.array(name).any() else ELSEWHERE

    def _differing(self, name: str, read: _Read, held: _Held) -> str | _Differing:
        expected, actual = self.array(name), held.array(read.name)
        sides = [actual]
        if actual.shape != expected.shape:
            sides = [actual.T]
        elif actual.ndim == _MATRIX and actual.shape[0] == actual.shape[1]:
            sides = [actual.T] if read.turned else [actual]
            if read.turned is None:
                sides = [actual, actual.T]
        found = [difference(expected, np.ascontiguousarray(side)) for side in sides]
        if None in found:
            return EQUAL
        least = min((one for one in found if one), key=lambda one: one.rms)
        return _Differing(
            name=name,
            constant=read.name,
            by=NAME if own_path(read.name) == name else PLACE,
            found=least,
            told=held.digest_of(read.name),
            axes=expected.ndim,
        )


def _without_folded(found: Sequence[str | _Differing]) -> Iterator[str | _Differing]:
    """Yield what was found, but for weights that a batch normalisation went into."""
    folded = {
        _module_of(one.name)
        for one in found
        if isinstance(one, _Differing) and one.found.kind == CHANNELS
    }
    for one in found:
        inside = isinstance(one, _Differing) and _module_of(one.name) in folded
        yield ELSEWHERE if inside else one


def _name_others(differing: Sequence[_Differing], weights: _Weights) -> None:
    """Say so where a weight that differs is another of PyTorch's."""
    if not any(one.found.kind in _UNKNOWN for one in differing):
        return
    owners = {
        told: name
        for name in reversed(weights.names)
        for told in weights.forms(name)
        if weights.array(name).any()
    }
    for one in differing:
        owner = owners.get(one.told)
        if owner not in {None, one.name} and one.found.kind in _UNKNOWN:
            words = f"it is {owner}"
            one.found = replace(one.found, kind=ANOTHER, words=words)
            one.other = str(owner)


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two arrays may be one, transposed perhaps."""
    return other in {shape, shape[::-1]} if len(shape) == _MATRIX else other == shape


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]


def digest_of(array: np.ndarray) -> bytes:
    """Return what arrays of equal bytes have in common."""
    return xxhash.xxh3_128_digest(np.ascontiguousarray(array))
