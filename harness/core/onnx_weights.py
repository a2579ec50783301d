"""Check that files beside an ONNX file hold all bytes that it says, without onnx.

MNN's converter reads past the end of a file that is too short, and takes what lies
there for weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import BinaryIO

from harness.core.onnx_header import (
    GRAPH,
    INITIALIZER,
    TENSOR_NAME,
    UNREADABLE,
    no_onnx,
)
from harness.core.protobuf import fields, text_of

_FUNCTION, _FUNCTION_NODE = 25, 7
_NODE, _ATTRIBUTE, _SPARSE = 1, 5, 15
_VALUES, _INDICES = 1, 2
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = (5, 10), (6, 11)
_DIMS, _DTYPE, _EXTERNAL = 1, 2, 13
_KEY, _VALUE = 1, 2

_BITS = {
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
    **dict.fromkeys((21, 22, 23), 4),
    **dict.fromkeys((25, 26), 2),
}
"""TensorProto.DataType to the bits of one element; text is kept in no other file."""


@dataclass(slots=True, kw_only=True)
class _Tensor:
    """One tensor; ``beside`` says where another file holds it, if one does."""

    name: str = ""
    dims: list[int] = field(default_factory=list)
    dtype: int = 0
    beside: dict[str, str] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        return int(self.beside.get("offset") or 0)

    @property
    def due_bytes(self) -> int:
        """Return the bytes that its shape and dtype need."""
        return -(-prod(self.dims) * _BITS.get(self.dtype, 0) // 8)

    @property
    def length(self) -> int:
        """Return the bytes that it says it has in that file."""
        return int(self.beside.get("length") or self.due_bytes)


def lacking_onnx(path: Path) -> str:
    """Return in one sentence which tensor another file does not hold whole.

    Empty where each file beside the ONNX file at `path` holds all that it must. Of the
    ONNX file only its structure is read, and of the others their sizes.

    Raises:
        SuiteError: There is no ONNX file at `path`, or it is cut short.

    """
    sizes: dict[str, int] = {}
    try:
        with path.open("rb") as file:
            for tensor in _of_model(file, path.stat().st_size):
                where = tensor.beside.get("location", "")
                beside = path.parent / where
                if where and where not in sizes:
                    sizes[where] = beside.stat().st_size if beside.is_file() else 0
                if where and (words := _lacks(tensor, path, sizes[where])):
                    return words
    except UNREADABLE as error:
        raise no_onnx(path, error) from None
    return ""


def _lacks(tensor: _Tensor, path: Path, present: int) -> str:
    where, needed = tensor.beside["location"], tensor.offset + tensor.length
    what = f"{path.name} keeps {tensor.name!r} in {where}"
    way_out = f"fetch or copy {where} again, or export the model again."
    if min(tensor.offset, tensor.length) < 0:
        return (
            f"{what} from byte {tensor.offset:,}, {tensor.length:,} bytes long, which "
            "no file can have; export the model again."
        )
    if needed > present:
        return (
            f"{what} up to byte {needed:,}, and that file has {present:,} bytes, so "
            f"{needed - present:,} of them are missing; {way_out}"
        )
    if tensor.length < tensor.due_bytes:
        return (
            f"{what} in {tensor.length:,} bytes, and its shape {tensor.dims} needs "
            f"{tensor.due_bytes:,}; export the model again."
        )
    return ""


def _of_model(file: BinaryIO, size: int) -> Iterator[_Tensor]:
    for number, begin, end in list(fields(file, 0, size)):
        if number == GRAPH:
            yield from _of_graph(file, begin, end)
        elif number == _FUNCTION:
            for inner, first, last in list(fields(file, begin, end)):
                if inner == _FUNCTION_NODE:
                    yield from _of_node(file, first, last)


def _of_graph(file: BinaryIO, begin: int, end: int) -> Iterator[_Tensor]:
    for number, at, stop in list(fields(file, begin, end)):
        if number == INITIALIZER:
            yield _tensor(file, at, stop)
        elif number == _SPARSE:
            for part, first, last in list(fields(file, at, stop)):
                if part in {_VALUES, _INDICES}:
                    yield _tensor(file, first, last)
        elif number == _NODE:
            yield from _of_node(file, at, stop)


def _of_node(file: BinaryIO, begin: int, end: int) -> Iterator[_Tensor]:
    """Yield the tensors in a node's attributes, and in the graphs that it holds."""
    for number, at, stop in list(fields(file, begin, end)):
        if number != _ATTRIBUTE:
            continue
        for part, first, last in list(fields(file, at, stop)):
            if part in _ATTRIBUTE_TENSORS:
                yield _tensor(file, first, last)
            elif part in _ATTRIBUTE_GRAPHS:
                yield from _of_graph(file, first, last)


def _tensor(file: BinaryIO, begin: int, end: int) -> _Tensor:
    tensor = _Tensor()
    for number, at, stop in list(fields(file, begin, end)):
        if number == _DIMS:
            tensor.dims.append(at)
        elif number == _DTYPE:
            tensor.dtype = at
        elif number == TENSOR_NAME:
            tensor.name = text_of(file, at, stop)
        elif number == _EXTERNAL:
            pair = dict.fromkeys((_KEY, _VALUE), "")
            for part, first, last in list(fields(file, at, stop)):
                pair[part] = text_of(file, first, last)
            tensor.beside[pair[_KEY]] = pair[_VALUE]
    return tensor
