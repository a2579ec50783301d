"""Read from an ``.mnn`` file which values its operators make, by name.

MNN's Python shows an operator's name or a value's, never both. The file has both: it is
a flatbuffer, whose tables are read by the numbers of their fields, which a format that
grows never changes (``MNN.fbs``: `Net`, `Op`).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flatbuffers import encode, packer
from flatbuffers.number_types import Int32Flags
from flatbuffers.table import Table

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
    except (struct.error, IndexError, TypeError, ValueError) as error:
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
    {'conv2d': 'relu', 'Convert5': 'silu'}
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
    net = Table(data, encode.Get(packer.uoffset, data, 0))
    names = [_text(net, place) for place in _places(net, _NET_NAMES)]
    every = (net.Indirect(place) for place in _places(net, _NET_OPERATORS))
    return [_operator(Table(data, at), names) for at in every]


def _operator(op: Table, names: list[str]) -> Operator:
    def named(field: int) -> tuple[str, ...]:
        numbers = (op.Get(Int32Flags, place) for place in _places(op, field))
        return tuple(names[number] for number in numbers)

    name = op.Offset(_slot(_OP_NAME))
    return Operator(
        name=_text(op, op.Pos + name) if name else "",
        reads=named(_OP_READS),
        makes=named(_OP_MAKES),
    )


def _places(table: Table, field: int) -> range:
    """Return where a table's vector keeps its entries, of four bytes each."""
    offset = table.Offset(_slot(field))
    if not offset:
        return range(0)
    start = table.Vector(offset)
    return range(start, start + 4 * table.VectorLen(offset), 4)


def _slot(field: int) -> int:
    """Return where a table's index of fields keeps one; two sizes stand before them."""
    return 4 + 2 * field


def _text(table: Table, place: int) -> str:
    return bytes(table.String(place)).decode("utf-8", errors="replace")
