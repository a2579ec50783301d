"""What an ONNX graph declares: inputs, outputs, opset, and the files of its weights.

onnx is imported late: pytest reads a suite at every collection, and no framework may
load there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.received import DamagedError, leads_inside, read_bytes

if TYPE_CHECKING:
    import onnx

PROTO_BYTES = 2 << 30
"""Largest size of an ONNX file without its external data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One input or output of a file, of any runtime's format.

    Attributes:
        name: Name in the file.
        dtype: Dtype as NumPy names it; empty if the file does not declare it.
        shape: Size of each axis. Text stands for an open axis, and it is empty if that
            axis has no name. None if the file declares no shape.

    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        """Dtype and shape for messages: ``int64 [batch, 77]``."""
        shape = ("?",) if self.shape is None else self.shape
        sizes = ", ".join("?" if size == "" else str(size) for size in shape)
        return f"{self.dtype or '?'} [{sizes}]"


def port_of(value: onnx.ValueInfoProto) -> Port:
    """Return an input or output as a graph declares it."""
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        # Some exporters write -1 for an open axis; 0 is the size of an empty one.
        shape = tuple(
            dim.dim_value
            if dim.HasField("dim_value") and dim.dim_value >= 0
            else dim.dim_param
            for dim in tensor.shape.dim
        )
    return Port(name=value.name, dtype=_dtype(tensor.elem_type), shape=shape)


def _dtype(number: int) -> str:
    """Return the NumPy name of a ``TensorProto.DataType``; empty if it is none."""
    import onnx

    names = {value: name for name, value in onnx.TensorProto.DataType.items()}
    others = {"FLOAT": "float32", "DOUBLE": "float64", "UNDEFINED": ""}
    name = names.get(number, "")
    return others.get(name, name.lower())


def opset_of(model: onnx.ModelProto) -> int:
    """Return the opset of ONNX's own operators in a file; 0 if it declares none."""
    domains = ("", "ai.onnx")
    declared = [one.version for one in model.opset_import if one.domain in domains]
    return max(declared, default=0)


def files_beside(path: Path) -> tuple[str, ...]:
    """Return the names of the files beside an ONNX file that hold its weights.

    A name that leads out of the file's folder is left out. Each version of a file is
    parsed once in a process.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is no ONNX file.

    """
    about = path.stat()
    return _files_beside(path, about.st_size, about.st_mtime_ns)


@functools.cache
def _files_beside(path: Path, _size: int, _changed: int) -> tuple[str, ...]:
    names: tuple[object, ...] = weight_files(parsed(path))  # protobuf gives any text
    return tuple(name for name in names if isinstance(name, str) and leads_inside(name))


def parsed(path: Path) -> onnx.ModelProto:
    """Parse an ONNX file, without weights in other files.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is no ONNX file.

    """
    import onnx
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(read_bytes(path, PROTO_BYTES))
    except DecodeError as error:
        raise DamagedError(str(error)) from error
    return model


def weight_files(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the names of the files beside a model that hold its weights.

    They are data, and may lead anywhere.
    """
    files = (external_data(one).get("location", "") for one in tensors_of(model))
    return tuple(filter(None, dict.fromkeys(files)))


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a model: of its graph, its subgraphs and its functions."""
    yield from _in_graph(model.graph)
    for function in model.functions:
        yield from _in_nodes(function.node)


def _in_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _in_nodes(graph.node)


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            graphs = (attribute.g,) if attribute.HasField("g") else attribute.graphs
            for graph in graphs:
                yield from _in_graph(graph)


def external_data(tensor: onnx.TensorProto) -> dict[str, str]:
    """Return what a tensor says about its values in another file."""
    return {entry.key: entry.value for entry in tensor.external_data}
