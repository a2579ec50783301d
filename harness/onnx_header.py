"""Read what an ONNX file takes and gives, without onnx and without its weights.

A suite is read at every pytest collection, where no framework may load; this walks the
protobuf message itself and jumps over all that is large.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.errors import SuiteError

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
}
"""TensorProto.DataType, as far as an input can be fed from numpy, and its name."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH = 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_FIRST, _SECOND = 1, 2
"""Of the small messages: a name and a type, a type and a shape, a key and a value."""
_LONG = 8
_MORE = 0x80
_LONGEST_VARINT = 70

Field = tuple[int, int, int]
"""Number of a field, and where its bytes begin and end; of a number, its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One input or output of a file.

    Attributes:
        name: In the file.
        dtype: As numpy calls it; empty where the file does not say.
        shape: Sizes; text for an axis left open, empty text for one without a name.
            None where the file says nothing of the shape.

    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        """``int64 [batch, 77]``, as messages say it."""
        sizes = (
            "?" if self.shape is None else ", ".join(str(s or "?") for s in self.shape)
        )
        return f"{self.dtype or '?'} [{sizes}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file takes and gives, and the files beside it that hold its weights."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    files: tuple[str, ...]


def read_header(path: Path) -> Header:
    """Return the inputs, outputs and external files of the ONNX file at `path`.

    Raises:
        SuiteError: It is not there, or is no ONNX file.

    """
    try:
        about = path.stat()
    except OSError as error:
        msg = f"there is no ONNX file at {path} ({error.strerror})."
        raise SuiteError(msg) from None
    return _read(path, about.st_size, about.st_mtime_ns)


@functools.cache
def _read(path: Path, size: int, _changed: int) -> Header:
    try:
        with path.open("rb") as file:
            return _header(file, size)
    except (OSError, ValueError, EOFError) as error:
        msg = f"{path} is no ONNX file, or is cut short ({error})."
        raise SuiteError(msg) from None


def _header(file: BinaryIO, size: int) -> Header:
    graphs = [
        (begin, end)
        for number, begin, end in _fields(file, 0, size)
        if number == _GRAPH
    ]
    if not graphs:
        msg = "it holds no graph"
        raise ValueError(msg)
    inputs: list[Port] = []
    outputs: list[Port] = []
    weights: set[str] = set()
    files: dict[str, None] = {}
    for number, begin, end in list(_fields(file, *graphs[0])):
        if number == _INPUT:
            inputs.append(_port(file, begin, end))
        elif number == _OUTPUT:
            outputs.append(_port(file, begin, end))
        elif number == _INITIALIZER:
            name, location = _tensor(file, begin, end)
            weights.add(name)
            if location:
                files[location] = None
    if not outputs:
        msg = "its graph has no output"
        raise ValueError(msg)
    # Older files list their weights among the inputs.
    return Header(
        inputs=tuple(port for port in inputs if port.name not in weights),
        outputs=tuple(outputs),
        files=tuple(files),
    )


def _port(file: BinaryIO, begin: int, end: int) -> Port:
    name, dtype, shape = "", "", None
    for number, at, stop in _fields(file, begin, end):
        if number == _FIRST:
            name = _text(file, at, stop)
        elif number == _SECOND:  # TypeProto
            for kind, first, last in list(_fields(file, at, stop)):
                if kind == _FIRST:  # tensor_type
                    dtype, shape = _tensor_type(file, first, last)
    return Port(name=name, dtype=dtype, shape=shape)


def _tensor_type(
    file: BinaryIO, begin: int, end: int
) -> tuple[str, tuple[int | str, ...] | None]:
    dtype, shape = "", None
    for number, at, stop in _fields(file, begin, end):
        if number == _FIRST:
            dtype = DTYPES.get(at, "")
        elif number == _SECOND:
            dims = [(a, b) for n, a, b in list(_fields(file, at, stop)) if n == _FIRST]
            shape = tuple(_size(file, first, last) for first, last in dims)
    return dtype, shape


def _size(file: BinaryIO, begin: int, end: int) -> int | str:
    for number, at, stop in _fields(file, begin, end):
        if number == _FIRST and at > 0:
            return at
        if number == _SECOND:
            return _text(file, at, stop)
    return ""


def _tensor(file: BinaryIO, begin: int, end: int) -> tuple[str, str]:
    """Return a weight's name and the file that holds it, if another does."""
    name, location = "", ""
    for number, at, stop in _fields(file, begin, end):
        if number == _TENSOR_NAME:
            name = _text(file, at, stop)
        elif number == _TENSOR_EXTERNAL:
            pair = dict.fromkeys((_FIRST, _SECOND), "")
            for part, first, last in list(_fields(file, at, stop)):
                pair[part] = _text(file, first, last)
            if pair[_FIRST] == "location":
                location = pair[_SECOND]
    return name, location


def _fields(file: BinaryIO, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two places."""
    at = begin
    while at < end:
        file.seek(at)
        tag = _varint(file)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value = _varint(file)
            at = file.tell()
            yield number, value, value
        elif wire == _BYTES:
            length = _varint(file)
            first = file.tell()
            at = first + length
            if at > end:
                msg = "a part of it is longer than the whole"
                raise ValueError(msg)
            yield number, first, at
        elif wire in {_FIXED64, _FIXED32}:
            at = file.tell() + (_LONG if wire == _FIXED64 else _LONG // 2)
        else:
            msg = "it is no protobuf message"
            raise ValueError(msg)


def _varint(file: BinaryIO) -> int:
    value, shift = 0, 0
    while shift < _LONGEST_VARINT:
        byte = file.read(1)
        if not byte:
            msg = "it ends too early"
            raise EOFError(msg)
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < _MORE:
            return value
        shift += 7
    msg = "it is no protobuf message"
    raise ValueError(msg)


def _text(file: BinaryIO, begin: int, end: int) -> str:
    file.seek(begin, io.SEEK_SET)
    return file.read(end - begin).decode("utf-8")
