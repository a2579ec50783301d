"""Read from an ``.mnn`` file which values its operators make, by name.

MNN's Python shows an operator's name or a value's, never both. The file has both: it is
a flatbuffer, whose tables are read here by the places of their fields, which a format
that grows never changes (``MNN.fbs``: `Net`, `Op`).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_NET_OPERATORS, _NET_NAMES = 3, 7
_OP_READS, _OP_NAME, _OP_MAKES = 0, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a file.

    Attributes:
        name: Its own; what MNN's session calls it.
        reads: Names of the values that it takes.
        makes: Names of those that it makes.

    """

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def operators(path: Path) -> list[Operator]:
    """Return the operators of the file at `path`, in order.

    Raises:
        ValueError: It is no such file, or it is cut off.

    """
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _operators(data)
    except (struct.error, IndexError, ValueError) as error:
        msg = f"{path.name} cannot be read as an .mnn file ({error})."
        raise ValueError(msg) from error


def values_made(found: Iterable[Operator]) -> dict[str, str]:
    """Return what those operators make whose value has another name than they have.

    The converter computes a ReLU in the convolution or the sum before it, which keeps
    its name and makes the ReLU's value. It moves a change of layout behind an operator
    element by element, and every value between keeps the name it had *there*: the name
    is that at the end of the operators which were moved, each called as what it reads.

    >>> relu = Operator(name="conv2d", reads=("x",), makes=("relu",))
    >>> silu = Operator(name="silu", reads=("linear",), makes=("Convert5",))
    >>> moved = Operator(name="Convert5", reads=("Convert5",), makes=("silu",))
    >>> values_made([relu, silu, moved])
    {'conv2d': 'relu'}
    """
    by_name = {one.name: one for one in found if one.makes}
    made = {name: _end(one, by_name) for name, one in by_name.items()}
    return {name: value for name, value in made.items() if value != name}


def _end(start: Operator, by_name: Mapping[str, Operator]) -> str:
    value = start.makes[0]
    passed = {start.name}
    while value not in passed and value in by_name and value in by_name[value].reads:
        passed.add(value)
        value = by_name[value].makes[0]
    return value


def _operators(data: mmap.mmap) -> list[Operator]:
    net = _offset(data, 0)
    names = [_text(data, at) for at in _tables(data, _field(data, net, _NET_NAMES))]
    return [
        Operator(
            name=_text(data, _reference(data, _field(data, op, _OP_NAME))),
            reads=_named(data, _field(data, op, _OP_READS), names),
            makes=_named(data, _field(data, op, _OP_MAKES), names),
        )
        for op in _tables(data, _field(data, net, _NET_OPERATORS))
    ]


def _named(data: mmap.mmap, at: int, names: list[str]) -> tuple[str, ...]:
    if not at:
        return ()
    start = _reference(data, at)
    (count,) = struct.unpack_from("<I", data, start)
    places = struct.unpack_from(f"<{count}i", data, start + 4)
    return tuple(names[place] for place in places)


def _field(data: mmap.mmap, table: int, number: int) -> int:
    """Return where a table keeps a field, or 0 if it has none."""
    (back,) = struct.unpack_from("<i", data, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", data, fields)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, fields + 4 + 2 * number)
    return table + offset if offset else 0


def _tables(data: mmap.mmap, at: int) -> list[int]:
    """Return where the entries of a vector of tables, or of strings, are."""
    if not at:
        return []
    start = _reference(data, at)
    (count,) = struct.unpack_from("<I", data, start)
    return [_offset(data, start + 4 + 4 * entry) for entry in range(count)]


def _reference(data: mmap.mmap, at: int) -> int:
    return _offset(data, at) if at else 0


def _offset(data: mmap.mmap, at: int) -> int:
    (offset,) = struct.unpack_from("<I", data, at)
    return at + int(offset)


def _text(data: mmap.mmap, at: int) -> str:
    if not at:
        return ""
    (length,) = struct.unpack_from("<I", data, at)
    return data[at + 4 : at + 4 + length].decode("utf-8", errors="replace")
