"""Read what an ONNX file takes and gives, without onnx and without its weights.

A suite is read at every pytest collection, where no framework may load; this walks the
protobuf message itself.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.core.errors import SuiteError
from harness.core.protobuf import fields, text_of

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

GRAPH, INITIALIZER, TENSOR_NAME = 7, 5, 8
"""Fields of a model, of its graph, and of a weight in that."""
_INPUT, _OUTPUT = 11, 12
_TENSOR_DTYPE, _TENSOR_RAW, _TENSOR_EXTERNAL = 2, 9, 13
_HALVES = ("float16", "bfloat16")
UNREADABLE = (OSError, ValueError, EOFError)
_FIRST, _SECOND = 1, 2
"""Of the small messages: a name and a type, a type and a shape, a key and a value."""


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
    """What a file takes and gives, and how it keeps its weights.

    Attributes:
        inputs: Those that are fed.
        outputs: In the file's order.
        files: Beside it, with weights.
        half_bytes: Of weights in 16 bits, wherever they are kept.

    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    files: tuple[str, ...]
    half_bytes: int


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
    except UNREADABLE as error:
        raise no_onnx(path, error) from None


def no_onnx(path: Path, error: Exception) -> SuiteError:
    """Return what to raise of a file in which walking met one of `UNREADABLE`."""
    return SuiteError(f"{path} is no ONNX file, or is cut short ({error}).")


def _header(file: BinaryIO, size: int) -> Header:
    graphs = [
        (begin, end) for number, begin, end in fields(file, 0, size) if number == GRAPH
    ]
    if not graphs:
        msg = "it holds no graph"
        raise ValueError(msg)
    inputs: list[Port] = []
    outputs: list[Port] = []
    weights: set[str] = set()
    half_bytes = 0
    files: dict[str, None] = {}
    for number, begin, end in list(fields(file, *graphs[0])):
        if number == _INPUT:
            inputs.append(_port(file, begin, end))
        elif number == _OUTPUT:
            outputs.append(_port(file, begin, end))
        elif number == INITIALIZER:
            name, location, halves = _tensor(file, begin, end)
            weights.add(name)
            half_bytes += halves
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
        half_bytes=half_bytes,
    )


def _port(file: BinaryIO, begin: int, end: int) -> Port:
    name, dtype, shape = "", "", None
    for number, at, stop in fields(file, begin, end):
        if number == _FIRST:
            name = text_of(file, at, stop)
        elif number == _SECOND:  # TypeProto
            for kind, first, last in list(fields(file, at, stop)):
                if kind == _FIRST:  # tensor_type
                    dtype, shape = _tensor_type(file, first, last)
    return Port(name=name, dtype=dtype, shape=shape)


def _tensor_type(
    file: BinaryIO, begin: int, end: int
) -> tuple[str, tuple[int | str, ...] | None]:
    dtype, shape = "", None
    for number, at, stop in fields(file, begin, end):
        if number == _FIRST:
            dtype = DTYPES.get(at, "")
        elif number == _SECOND:
            dims = [(a, b) for n, a, b in list(fields(file, at, stop)) if n == _FIRST]
            shape = tuple(_size(file, first, last) for first, last in dims)
    return dtype, shape


def _size(file: BinaryIO, begin: int, end: int) -> int | str:
    for number, at, stop in fields(file, begin, end):
        if number == _FIRST and at > 0:
            return at
        if number == _SECOND:
            return text_of(file, at, stop)
    return ""


def _tensor(file: BinaryIO, begin: int, end: int) -> tuple[str, str, int]:
    """Return a weight's name, the file that holds it, if another does, and its bytes.

    The bytes are 0 unless it is in 16 bits.
    """
    name, location, dtype, size_bytes = "", "", "", 0
    for number, at, stop in fields(file, begin, end):
        if number == TENSOR_NAME:
            name = text_of(file, at, stop)
        elif number == _TENSOR_DTYPE:
            dtype = DTYPES.get(at, "")
        elif number == _TENSOR_RAW:
            size_bytes = stop - at
        elif number == _TENSOR_EXTERNAL:
            pair = dict.fromkeys((_FIRST, _SECOND), "")
            for part, first, last in list(fields(file, at, stop)):
                pair[part] = text_of(file, first, last)
            if pair[_FIRST] == "location":
                location = pair[_SECOND]
            elif pair[_FIRST] == "length":
                size_bytes = int(pair[_SECOND])
    return name, location, size_bytes if dtype in _HALVES else 0
