"""Walk a protobuf message in a file, and jump over what is large in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

Field = tuple[int, int, int]
"""Number of a field, and where its bytes begin and end; of a number, its value."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONG = 8
_MORE = 0x80
_LONGEST_VARINT = 70


def fields(file: BinaryIO, begin: int, end: int) -> Iterator[Field]:
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


def text_of(file: BinaryIO, begin: int, end: int) -> str:
    """Return what lies between two places, as text."""
    file.seek(begin)
    return file.read(end - begin).decode("utf-8")
