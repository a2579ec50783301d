"""Read the inputs and outputs of an ONNX file, and where its weights are.

pytest reads a suite at every collection, and no framework may load there. So onnx is
imported only when a suite names an ONNX file, and each file is parsed once in a
process. Weights in other files are not read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import SuiteError
from harness.core.onnx_ports import (
    Port,
    external_data,
    opset_of,
    parsed,
    port_of,
    tensors_of,
)
from harness.core.received import DamagedError, leads_inside
from harness.core.text import shortened

if TYPE_CHECKING:
    import onnx

_MOST_BYTES = 1 << 46
"""Bytes of a tensor that no machine holds."""

_SHOWN = 80
"""Most characters of a name in a message."""

HALVES = (10, 16)
_BITS = {
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
    **dict.fromkeys((21, 22, 23), 4),
    **dict.fromkeys((25, 26), 2),
}
"""Bits of one element for each ``TensorProto.DataType``. Text is not listed: it is
never in another file."""

_SAME_NUMBERS = frozenset(
    ("Cast", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")
)
_SAME_ROWS = frozenset(("Cast", "DequantizeLinear", "Identity"))
"""Operators that keep ids as ids, or a table as a table. The first input is the one
that they keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalTensor:
    """A tensor whose values are in another file.

    Attributes:
        name: Name of the tensor.
        dims: Shape of the tensor.
        location: Path of the file that holds it, relative to the ONNX file.
        offset: Position of its first byte in that file.
        length: Number of bytes that it has there, according to the ONNX file.
        due_bytes: Number of bytes that its shape and dtype need.

    """

    name: str
    dims: tuple[int, ...]
    location: str
    offset: int
    length: int
    due_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The inputs and outputs of a file, and how it keeps its weights.

    Attributes:
        inputs: Inputs that a caller gives; weights are not among them.
        outputs: Outputs, in the file's order.
        files: Names of the files beside it that hold weights.
        half_bytes: Bytes of 16-bit weights, in this file or beside it.
        rows: Number of rows of the shortest table that each input looks up. Inputs
            without a table are absent. A drawn token id must be below this number: ONNX
            Runtime refuses a larger one, and other runtimes read from any address.
        external: Every tensor that is in another file, wherever it is in the graph.
        opset: Version of ONNX's own operators that the file declares; 0 if it declares
            none.

    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    files: tuple[str, ...]
    half_bytes: int
    rows: Mapping[str, int] = field(repr=False)
    external: tuple[ExternalTensor, ...] = field(repr=False)
    opset: int


def read_header(path: Path) -> Header:
    """Return the inputs and outputs of the ONNX file at `path`.

    The result is checked: names are text, sizes can be, each node reads and makes as
    many values as its operator must, and each file with weights lies in the folder of
    the ONNX file. Code that reads the graph may rely on that.

    Raises:
        SuiteError: The file is not there, is no ONNX file, is damaged, or is of a newer
            version of ONNX than the installed onnx.

    """
    try:
        about = path.stat()
    except OSError as error:
        msg = f"there is no ONNX file at {path} ({error.strerror})."
        raise SuiteError(msg) from None
    return _read(path, about.st_size, about.st_mtime_ns)


@functools.cache
def _read(path: Path, _size: int, _changed: int) -> Header:
    try:
        model = parsed(path)
    except (OSError, DamagedError) as error:
        msg = f"{path} is no ONNX file, or is cut short ({error})."
        raise SuiteError(msg) from None
    if not model.graph.output:
        what = "graph" if not model.HasField("graph") else "output in its graph"
        msg = f"{path} is no ONNX file, or is cut short (it holds no {what})."
        raise SuiteError(msg)
    _refuse_newer(path, model)
    try:
        _check(model)
        return _header(model)
    except DamagedError as error:
        msg = f"{path} is damaged: {error}. Fetch it again, or export the model again."
        raise SuiteError(msg) from None


def _header(model: onnx.ModelProto) -> Header:
    graph = model.graph
    # Older files list weights among the inputs.
    weights = {tensor.name for tensor in graph.initializer}
    inputs = tuple(port_of(value) for value in graph.input if value.name not in weights)
    external = tuple(_external(one) for one in tensors_of(model) if _is_external(one))
    return Header(
        inputs=inputs,
        outputs=tuple(map(port_of, graph.output)),
        files=tuple(dict.fromkeys(one.location for one in external)),
        half_bytes=sum(
            2 * prod(tensor.dims)
            for tensor in graph.initializer
            if tensor.data_type in HALVES
        ),
        rows=_rows_looked_up(graph, [port.name for port in inputs]),
        external=external,
        opset=opset_of(model),
    )


def _refuse_newer(path: Path, model: onnx.ModelProto) -> None:
    """Refuse a file of a version of ONNX that the installed onnx does not know."""
    import onnx

    for what, said, newest in (
        ("opset", opset_of(model), onnx.defs.onnx_opset_version()),
        ("IR version", model.ir_version, onnx.IR_VERSION),
    ):
        if said > newest:
            msg = (
                f"{path} says that it is of {what} {said}, and the newest that onnx "
                f"{onnx.__version__} knows is {newest}. Export it with an older one, "
                "or install a newer onnx."
            )
            raise SuiteError(msg)


def _rows_looked_up(graph: onnx.GraphProto, inputs: Iterable[str]) -> dict[str, int]:
    tables = {one.name: one.dims[0] for one in graph.initializer if one.dims}
    ids = {name: name for name in inputs}
    found: dict[str, int] = {}
    for node in graph.node:
        first, second = [*map(str, node.input), "", ""][:2]
        if node.op_type in _SAME_NUMBERS and first in ids:
            ids[node.output[0]] = ids[first]
        elif node.op_type in _SAME_ROWS and first in tables:
            tables[node.output[0]] = tables[first]
        elif node.op_type == "Gather" and first in tables and second in ids:
            name = ids[second]
            found[name] = min(tables[first], found.get(name, tables[first]))
    return found


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.external_data) or tensor.data_location == tensor.EXTERNAL


def _external(tensor: onnx.TensorProto) -> ExternalTensor:
    about = external_data(tensor)
    due = -(-prod(tensor.dims) * _BITS.get(tensor.data_type, 0) // 8)
    return ExternalTensor(
        name=tensor.name,
        dims=tuple(tensor.dims),
        location=_location(tensor, about.get("location", "")),
        offset=_bytes(tensor, "offset", about.get("offset") or "0"),
        length=_bytes(tensor, "length", about.get("length") or str(due)),
        due_bytes=due,
    )


def _location(tensor: onnx.TensorProto, said: str) -> str:
    """Return the path of a file with weights, which must lie in the model's folder.

    Raises:
        DamagedError: It leads elsewhere, or no file can have that name.

    """
    if not leads_inside(said):
        msg = (
            f"the tensor {_cut(tensor.name)} is kept in {_cut(said)}, which is outside "
            "its own folder, or which no file can be called"
        )
        raise DamagedError(msg)
    return said


def _bytes(tensor: onnx.TensorProto, key: str, said: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", said):
        msg = f"the {key} of tensor {_cut(tensor.name)} is {_cut(said)}, and no number"
        raise DamagedError(msg)
    return int(said)


def _check(model: onnx.ModelProto) -> None:
    """Refuse a graph that nothing can run, and that code which reads it relies on.

    Raises:
        DamagedError: A name is no text, a size cannot be, or a node has fewer inputs or
            outputs than its operator.

    """
    opsets = {one.domain: one.version for one in model.opset_import}
    _check_graph(model.graph, opsets)
    for function in model.functions:
        _check_texts("function", (function.name, function.domain))
        own = {one.domain: one.version for one in function.opset_import}
        for node in function.node:
            _check_node(node, own or opsets)


def _check_graph(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _check_texts("value", (value.name,))
        sizes = value.type.tensor_type.shape.dim
        _check_texts("axis", (dim.dim_param for dim in sizes))
        # Some exporters write -1 for an open axis.
        _check_sizes(value.name, [max(dim.dim_value, 0) for dim in sizes], 64)
    parts = [(one.values, one.indices) for one in graph.sparse_initializer]
    for tensor in (*graph.initializer, *(one for pair in parts for one in pair)):
        _check_tensor(tensor)
    for node in graph.node:
        _check_node(node, opsets)


def _check_node(node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
    names = (node.name, node.op_type, node.domain, *node.input, *node.output)
    _check_texts("node", (*names, *(one.name for one in node.attribute)))
    domain = node.domain if node.domain != "ai.onnx" else ""
    least_in, least_out = _least(node.op_type, domain, opsets.get(domain, 0))
    for count, least, what in (
        (len(node.input), least_in, "reads"),
        (len(node.output), max(least_out, 1), "makes"),
    ):
        if count < least:
            msg = (
                f"the node {_cut(node.name)} ({_cut(node.op_type)}) {what} {count} "
                f"values, and its operator {what} {least} at least"
            )
            raise DamagedError(msg)
    if node.op_type == "Constant" and not node.attribute:
        msg = f"the node {_cut(node.name)} (Constant) has no value"
        raise DamagedError(msg)
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _check_tensor(attribute.t)
        for tensor in attribute.tensors:
            _check_tensor(tensor)
        inner = (attribute.g,) if attribute.HasField("g") else attribute.graphs
        for graph in inner:
            _check_graph(graph, opsets)


@functools.cache
def _least(operator: str, domain: str, version: int) -> tuple[int, int]:
    """Return how many inputs and outputs an operator has at least; 0 if not known."""
    from onnx import defs

    try:
        version = version or defs.onnx_opset_version()
        schema = defs.get_schema(operator, version, domain)
    except Exception:  # noqa: BLE001  # onnx's own error is no public class
        return 0, 0
    return schema.min_input, schema.min_output


def _check_tensor(tensor: onnx.TensorProto) -> None:
    _check_texts("tensor", (tensor.name,))
    for entry in tensor.external_data:
        _check_texts("external data", (entry.key, entry.value))
    bits = _BITS.get(tensor.data_type, 0)
    _check_sizes(tensor.name, tensor.dims, bits or 8)
    if bits and tensor.HasField("raw_data") and not _is_external(tensor):
        due, there = -(-prod(tensor.dims) * bits // 8), len(tensor.raw_data)
        if due != there:
            msg = (
                f"the tensor {_cut(tensor.name)} has {there:,} bytes, and its shape "
                f"{list(tensor.dims)} needs {due:,}"
            )
            raise DamagedError(msg)


def _check_sizes(name: str, sizes: Iterable[int], bits: int) -> None:
    sizes = list(sizes)
    if min(sizes, default=0) < 0 or prod(filter(None, sizes)) * bits // 8 > _MOST_BYTES:
        msg = f"{_cut(name)} has the shape {sizes}, which no tensor can have"
        raise DamagedError(msg)


def _check_texts(what: str, texts: Iterable[object]) -> None:
    """Refuse what protobuf returns for a text that is no UTF-8."""
    for text in texts:
        if not isinstance(text, str):
            msg = f"a {what} has the name {text!r:.60}, which is no text"
            raise DamagedError(msg)


def _cut(name: str) -> str:
    return repr(shortened(name, _SHOWN))


def lacking_onnx(path: Path) -> str:
    """Return a message about a tensor that another file lacks, or "".

    The text is empty if each file beside the ONNX file at `path` holds all that it must
    hold. Only the sizes of these files are read. MNN's converter reads past the end of
    a file that is too short, and uses those bytes as weights.

    Raises:
        SuiteError: There is no ONNX file at `path`, or it is cut short.

    """
    sizes: dict[str, int | None] = {}
    for tensor in read_header(path).external:
        beside = path.parent / tensor.location
        if tensor.location not in sizes:
            sizes[tensor.location] = beside.stat().st_size if beside.is_file() else None
        if lack := _lack(tensor, path, sizes[tensor.location]):
            return lack
    return ""


def _lack(tensor: ExternalTensor, path: Path, present: int | None) -> str:
    where, needed = tensor.location, tensor.offset + tensor.length
    what = f"{path.name} keeps {tensor.name!r} in {where}"
    way_out = f"fetch or copy {where} again, or export the model again."
    if min(tensor.offset, tensor.length) < 0:
        return (
            f"{what} from byte {tensor.offset:,}, {tensor.length:,} bytes long, which "
            "no file can have; export the model again."
        )
    if present is None:
        return f"{what}, which is not there; {way_out}"
    if needed > present:
        return (
            f"{what} up to byte {needed:,}, and that file has {present:,} bytes, so "
            f"{needed - present:,} of them are missing; {way_out}"
        )
    if tensor.length < tensor.due_bytes:
        return (
            f"{what} in {tensor.length:,} bytes, and its shape {list(tensor.dims)} "
            f"needs {tensor.due_bytes:,}; export the model again."
        )
    return ""
