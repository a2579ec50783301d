"""The operands of PyTorch's operators: values, inputs, the graph's weights.

Nothing is read before it is needed: most runs have no error to describe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from harness.core.probes import Kind, Probe
from harness.measure.align import wanted_values
from harness.measure.name_map import Names
from harness.plugins.patterns.mended import MOST_ELEMENTS, MOST_NODES, Between, mended
from harness.plugins.patterns.observed import Form, Operation, other_orders, wide
from harness.runtimes.graph.onnx_graph import (
    makers_of,
    nodes_between,
    nodes_of,
    read_by,
    value_names,
)
from harness.runtimes.renamed import fed

if TYPE_CHECKING:
    from harness.measure.trace import Trace

_TRIED = 64
"""Largest number of other values of one shape that are tried."""

_LIFTED = ("lifted_", "c_lifted_")
"""Beginnings of the names that PyTorch gives to constants in the code of a module."""

_ELEMENTS = 2**25
"""Largest number of elements that the values tried have together."""

_ROLES: Mapping[str, Sequence[tuple[str, int, str, bool]]] = {
    "linear": (
        ("MatMul", 1, "weight", True),
        ("Gemm", 1, "weight", True),
        ("Gemm", 2, "bias", False),
        ("Add", 1, "bias", False),
    ),
    "conv2d": (("Conv", 1, "weight", False), ("Conv", 2, "bias", False)),
    "embedding": (("Gather", 0, "weight", False),),
}
"""PyTorch operator to the weights that its nodes read.

Each weight is the node's type, the index of its input, PyTorch's argument, and whether
the node reads the transpose.
"""


@dataclass(frozen=True)
class Operands:
    """Finds the operands of operators in one sample; `path` is the exported graph's."""

    trace: Trace
    probes: Sequence[Probe]
    feeds: Mapping[str, np.ndarray]
    path: Path

    def of(self, probe: Probe) -> Operation:
        """Return a value's operator with those of its tensors that are available."""
        op = probe.op.removeprefix("aten.").partition(".")[0]
        known = [
            (argument, name, value)
            for argument, name in probe.arguments
            if (value := self._value(name)) is not None
        ]
        return Operation(
            op=op,
            settings=dict(probe.settings),
            arguments=known,
            weights=self._weights(probe, op),
            others=self._others,
            reordered=lambda: self._reordered(probe),
            skipped=lambda: self._skipped(probe),
            mended=lambda *sides: self._mended(probe, *sides),
        )

    def _value(self, name: str) -> np.ndarray | None:
        """Return a value as recorded, or as the program's view of another value."""
        if name in self.trace:
            return self.trace[name]
        if name in self.feeds:
            return self.feeds[name]
        if name == self._only_input:
            return next(iter(self.feeds.values()))
        probe = self._named.get(name)
        moves = {Kind.MOVE, Kind.IDENTITY}
        if probe is None or probe.kind not in moves or not probe.arguments:
            return None
        value = self._value(probe.arguments[0][1])
        if value is None or probe.kind is Kind.IDENTITY:
            return value
        return moved(probe, value)

    def _others(self, shape: tuple[int, ...]) -> Iterator[Form]:
        """Yield inputs and computed values of a shape, in order."""
        tried = 0
        computed = (p.name for p in self.probes if p.kind in {Kind.COMPUTE, Kind.MOVE})
        for name in (*self.feeds, *computed):
            place = self.trace.places.get(name)
            if place is not None and (place.shape != shape or place.is_mask):
                continue
            value = self._value(name)
            if value is None or value.shape != shape or value.dtype.kind != "f":
                continue
            yield name, value
            tried += 1
            if tried == _TRIED or tried * value.size > _ELEMENTS:
                return

    def _reordered(self, probe: Probe) -> Iterator[Form]:
        """Yield the first tensor of a value with its parts in another order."""
        source = self._named.get(probe.arguments[0][1]) if probe.arguments else None
        while source is not None and source.kind is Kind.IDENTITY:
            source = self._named.get(source.arguments[0][1])
        if source is None or not source.op.startswith("aten.cat."):
            return
        parts = [self._value(name) for _, name in source.arguments]
        known = [wide(part) for part in parts if part is not None]
        axis = dict(source.settings).get("dim", 0)
        if len(known) == len(parts) and isinstance(axis, int):
            for made in other_orders(known, axis):
                yield f"the parts of {source.name} are exchanged: another order", made

    def _skipped(self, probe: Probe) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield operators in front of a value that the file lacks, and their inputs."""
        for _, name in probe.arguments:
            before = self._named.get(name)
            while before is not None and before.name not in self._values:
                if not before.arguments:
                    break
                _, source = before.arguments[0]
                value = self._value(source)
                moves = before.kind in {Kind.MOVE, Kind.IDENTITY}
                if value is not None and not moves:
                    yield f"{before.module or before.name}", source, value
                    break
                before = self._named.get(source) if moves else None

    def _mended(
        self, probe: Probe, expected: np.ndarray, actual: np.ndarray
    ) -> Iterator[Form]:
        """Yield a module's value, with the change that makes it PyTorch's.

        An operator of a program is described by its own forms.
        """
        if not probe.is_module or self._model is None or not probe.onnx:
            return
        known = {
            value: self.trace[known.name]
            for value, known in wanted_values(self.probes).items()
            if known.name in self.trace and value != probe.onnx
        }
        names = Names.load(self.path.parent)
        known.update(self.feeds if names is None else fed(names, dict(self.feeds)))
        found = {n.output[0] for n in nodes_between(self._makers, probe.onnx, known)}
        nodes = [n for n in self._model.graph.node if n.output[0] in found]
        read = {name for node in nodes for name in read_by(node)}
        given = {name: known[name] for name in read if name in known}
        held = {name: self._tensors[name] for name in read if name in self._tensors}
        sizes = [value.size for value in (expected, *given.values())]
        sizes += [math.prod(tensor.dims) for tensor in held.values()]
        if len(nodes) > MOST_NODES or max(sizes) > MOST_ELEMENTS:
            return
        constants = {name: self._read(name) for name in held}
        with suppress(Exception):  # the evaluator raises anything
            between = Between(nodes, given, constants, self._model.opset_import)
            yield from mended(between, probe.onnx, expected, actual)

    @cached_property
    def _only_input(self) -> str:
        """The program's name of a network's only input, which may be the wrapper's."""
        read = {name for probe in self.probes for _, name in probe.arguments}
        others = {
            name
            for name in read - self._named.keys()
            if "." not in name and not name.startswith(_LIFTED)
        }
        return others.pop() if len(others) == len(self.feeds) == 1 else ""

    @cached_property
    def _named(self) -> dict[str, Probe]:
        return {probe.name: probe for probe in self.probes}

    @cached_property
    def _model(self) -> onnx.ModelProto | None:
        try:
            return onnx.load(self.path, load_external_data=False)
        except Exception:  # noqa: BLE001  # protobuf's own; a foreign .mnn file has no graph
            return None

    @cached_property
    def _makers(self) -> dict[str, onnx.NodeProto]:
        return makers_of(self._model.graph) if self._model else {}

    @cached_property
    def _values(self) -> dict[str, str]:
        return value_names(self.probes)

    @cached_property
    def _tensors(self) -> dict[str, onnx.TensorProto]:
        held = self._model.graph.initializer if self._model else ()
        return {tensor.name: tensor for tensor in held}

    def _weights(self, probe: Probe, op: str) -> dict[str, np.ndarray]:
        roles = _ROLES.get(op, ())
        nodes = nodes_of(probe, self._makers, self._values) if roles else []
        found: dict[str, np.ndarray] = {}
        for kind, at, argument, turned in roles:
            for node in nodes:
                if node.op_type != kind or len(node.input) <= at:
                    continue
                # The bias may be either operand of an Add.
                names = node.input if kind == "Add" else node.input[at : at + 1]
                for name in names:
                    if name in self._tensors and argument not in found:
                        value = self._read(name)
                        flags = {a.name: a.i for a in node.attribute}
                        flip = turned and not flags.get("transB")  # as Linear holds it
                        found[argument] = value.T if flip else value
        return found

    def _read(self, name: str) -> np.ndarray:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(self._tensors[name])  # what is read from its file goes again
        return onnx.numpy_helper.to_array(tensor, str(self.path.parent))


def moved(probe: Probe, value: np.ndarray) -> np.ndarray | None:
    """Return a value as a probe's view shows it; None where its sizes are unknown."""
    told: dict[str, Any] = dict(probe.settings)
    match probe.op.removeprefix("aten.").partition(".")[0]:
        case "transpose":
            return np.swapaxes(value, told["dim0"], told["dim1"])
        case "permute" if isinstance(order := told["dims"], list):
            return np.transpose(value, order)
        case "unsqueeze":
            return np.expand_dims(value, told["dim"])
        case "view" | "reshape" | "_unsafe_view":
            return _viewed(value, told.get("size", told.get("shape")))
        case "contiguous" | "alias" | "detach":
            return value
    return None


def _viewed(value: np.ndarray, sizes: object) -> np.ndarray | None:
    """Return a reshaped value; of two open sizes the first is the batch's."""
    if not isinstance(sizes, list) or not sizes:
        return None
    wanted = list(sizes)
    if wanted.count(-1) > 1 and wanted[0] == -1:
        wanted[0] = value.shape[0]
    known = math.prod(size for size in wanted if size != -1)
    if wanted.count(-1) > 1 or not known or value.size % known:
        return None
    return value.reshape(wanted)
