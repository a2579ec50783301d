"""Read what an agent sends, and trust none of it.

A target is another machine, and whatever its command starts can answer in the place of
the agent. So a frame is read typed and bounded, and memory is taken as bytes arrive.
`agent` has the form of a frame.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from harness.core.kept_log import KeptLog
from harness.core.received import DamagedError, decode, in_a_clause

if TYPE_CHECKING:
    import numpy as np

HEAD_BYTES = 16 << 20
"""Largest size of a head: the graph of a large MNN file has 3 MB."""

Fill = Callable[[memoryview], None]
"""A function that fills a buffer with what an agent sends next."""

T = TypeVar("T")

Word = Annotated[str, Meta(max_length=200)]
"""A version, or the name of a processor."""

Line = Annotated[str, Meta(max_length=4096)]
"""A path, or a sentence."""


class Hello(Struct, frozen=True):
    """What an agent says of its Python and of the runtime."""

    protocol: int = 0
    python: Word = ""
    machine: Word = ""
    numpy: Word = ""
    lacks: Line = ""
    runtime: Word = ""


class Had(Struct, frozen=True):
    """Which files a target lacks, and what its agent notes about its folder."""

    lacking: list[str]
    note: Line = ""


class _Head(Struct, frozen=True):
    value: str | None = None
    failed: str | None = None
    done: msgspec.Raw = msgspec.Raw(b"null")


class _Array(Struct, frozen=True, array_like=True):
    name: str
    dtype: Annotated[str, Meta(pattern=r"^[<|][biufc]\d{1,2}$")]
    shape: Annotated[list[Annotated[int, Meta(ge=0, le=1 << 40)]], Meta(max_length=32)]


class _Told(Struct, frozen=True):
    head: _Head
    arrays: Annotated[list[_Array], Meta(max_length=1)]


class Frame(Struct, frozen=True):
    """One frame of an agent: a value, an error, or a result.

    Attributes:
        name: The name of the value; None in a frame that has none.
        value: The value.
        failed: The text of the error, cut; None if there is none.
        done: The result, as JSON that nobody has looked at.

    """

    name: str | None
    value: Any
    failed: str | None
    done: msgspec.Raw

    def result(self, kind: type[T]) -> T:
        """Return the result, if it has a type.

        Raises:
            DamagedError: It has another.

        """
        return decode(bytes(self.done), kind)


def read_frame(fill: Fill) -> Frame:
    """Read a frame with a function that fills a buffer.

    Raises:
        DamagedError: The bytes are no frame, or one that is too large.

    """
    size = bytearray(4)
    fill(memoryview(size))
    (length,) = struct.unpack(">I", size)
    if length > HEAD_BYTES:
        msg = f"it begins with {bytes(size)!r}"
        raise DamagedError(msg)
    text = bytearray(length)
    fill(memoryview(text))
    told = decode(bytes(text), _Told)
    name, failed = told.head.value, told.head.failed
    names = [array.name for array in told.arrays]
    if names != ([] if name is None else [name]):
        msg = "its arrays are not those that it names"
        raise DamagedError(msg)
    value = _filled(fill, told.arrays[0]) if told.arrays else None
    if failed is not None:
        log = KeptLog()
        log.add(failed.encode(errors="replace"))
        failed = log.text
    return Frame(name=name, value=value, failed=failed, done=told.head.done)


def _filled(fill: Fill, told: _Array) -> np.ndarray:
    """Return an array; the system gives it memory as its bytes come."""
    import numpy as np

    from harness.measure.received_arrays import ARRAY_BYTES

    count = math.prod(told.shape)
    with in_a_clause():
        dtype = np.dtype(told.dtype)
        if count * dtype.itemsize > ARRAY_BYTES:
            msg = f"it declares {count:,} numbers, and {ARRAY_BYTES:,} bytes are read"
            raise DamagedError(msg)
        flat = np.empty(count, dtype)
    if flat.size:
        fill(flat.view(np.uint8).data)
    return flat.reshape(told.shape)
