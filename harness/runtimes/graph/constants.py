"""The constants of a graph, the operators that read them, and digests of the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir
import xxhash

from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.core.probes import Kind, Probe
from harness.measure.align import wanted_values
from harness.runtimes.graph.onnx_graph import makers_of, nodes_between, tensors_of

if TYPE_CHECKING:
    import onnx

_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm", "LayerNormalization")
_BIAS = 2
"""Index of the bias among these operators' inputs."""

_PASSES_ON = ("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze")
_HELD_BY_OUTPUT = ("aten.linear.", "aten.conv", "aten.embedding.")
_MODULES = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding")
"""Operators and modules whose weight has one row for each output."""

_NARROW = {
    onnx_ir.DataType.FLOAT16: "float16",
    onnx_ir.DataType.BFLOAT16: "bfloat16",
    onnx_ir.DataType.INT8: "int8",
    onnx_ir.DataType.UINT8: "uint8",
    onnx_ir.DataType.INT4: "int4",
    onnx_ir.DataType.UINT4: "uint4",
}
"""Dtypes with fewer bits than float32."""


@dataclass(frozen=True, slots=True)
class Read:
    """A constant as an operator reads it.

    Attributes:
        name: Name of the initialiser or of the Constant node's value.
        turned: Whether it is the transpose of the weight of PyTorch's operator; None
            where the operator does not tell.
        added: Whether the operator adds it, as it does a bias.

    """

    name: str
    turned: bool | None
    added: bool | None = None


class Places:
    """The constants that each module's operators read."""

    def __init__(self, probes: Sequence[Probe], graph: onnx.GraphProto) -> None:
        self._makers = makers_of(graph)
        self._found: dict[str, dict[Read, None]] = {}
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

    def at(self, module: str) -> list[Read]:
        """Return the constants that a module's operators read."""
        return list(self._found.get(module, ()))

    def _read_by(self, node: onnx.NodeProto) -> Iterator[Read]:
        if node.op_type in (*_PASSES_ON, "Transpose"):  # its readers look through it
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
            yield Read(name, turned, added)


def _turned(node: onnx.NodeProto, index: int) -> bool | None:
    """Return whether an operator reads the transpose of PyTorch's matrix."""
    if node.op_type == "MatMul" and index == 1:
        return True
    if node.op_type == "Gemm" and index == 1:
        return not any(a.name == "transB" and a.i for a in node.attribute)
    if (node.op_type, index) in {("Gather", 0), ("Conv", 1)}:
        return False
    return None


class Held:
    """The constants that a graph's nodes read.

    Attributes:
        arrays: Numbers of each float32 constant by its name, without axes of one.
        digests: A digest of the bytes of each of these.
        narrow: Dtype with fewer bits than float32 to the number of its constants.

    """

    def __init__(self, path: Path, graph: onnx.GraphProto) -> None:
        read = {name for node in graph.node for name in node.input}
        self.arrays: dict[str, np.ndarray] = {}
        self.digests: dict[str, bytes] = {}
        self.narrow: Counter[str] = Counter()
        for name, proto in tensors_of(graph).items():
            if name not in read:
                continue
            tensor = onnx_ir.serde.deserialize_tensor(proto, str(path.parent))
            if tensor.dtype is onnx_ir.DataType.FLOAT:
                self.arrays[name] = _array(name, tensor).squeeze()
                self.digests[name] = digest_of(self.arrays[name])
            elif tensor.dtype in _NARROW and tensor.size > 1:
                self.narrow[_NARROW[tensor.dtype]] += 1


def _array(name: str, tensor: onnx_ir.TensorProtocol) -> np.ndarray:
    """Return a tensor's numbers, memory-mapped if a file beside the graph has them."""
    try:
        return np.asarray(tensor.numpy())
    except (OSError, ValueError) as error:
        msg = (
            f"weight {name} of the graph cannot be read ({first_line(error)}): the "
            "file that holds it is missing or cut short; export or copy it again."
        )
        raise StageError(msg, outcome=Outcome.LOAD) from error


def digest_of(array: np.ndarray) -> bytes:
    """Return a digest that is equal for arrays of equal bytes."""
    return xxhash.xxh3_128_digest(np.ascontiguousarray(array))
