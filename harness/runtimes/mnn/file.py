"""Read from an ``.mnn`` file which values its operators make, by name.

MNN's Python shows an operator's name or a value's, never both. The file has both. It is
a flatbuffer, whose tables are read by the numbers of their fields. A format that grows
never changes these numbers (``MNN.fbs``: `Net`, `Op`, `ExtraInfo`).
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from flatbuffers import encode, packer
from flatbuffers.number_types import Int32Flags, Int64Flags, Uint8Flags
from flatbuffers.table import Table

T = TypeVar("T")

_NET_EXTRA, _NET_OPERATORS, _NET_NAMES, _NET_ID = 2, 3, 7, 11
_EXTRA_VERSION = 2
_OP_READS, _OP_KIND, _OP_PARAMETERS, _OP_NAME, _OP_MAKES = 0, 1, 2, 3, 4
_CONVOLUTION: Final = 9
_CONV_COMMON, _CONV_WEIGHT, _CONV_BIAS, _CONV_ROUNDED, _CONV_EXTERNAL = 0, 1, 2, 3, 6
_COMMON_OUTPUTS = 10
_ROUNDED_BUFFER, _ROUNDED_SCALES, _ROUNDED_TYPE, _ROUNDED_BITS = 0, 1, 2, 7
_HALF, _BYTES = 3, 4
"""Types of rounded weights that have no field for their bits: float16, and int8."""
_ENTRY: Final = 4
_BESIDE: Final = {7: 9, 9: 6, 58: 3, 88: 5}
"""Kind of an operator's parameters (Blob, Convolution2D, Scale, LayerNorm) to the
number of their field ``external``: where weights begin in the other file, and
their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a file: its own name, and the values that it reads and makes."""

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLayer:
    """The weights of one convolution or matrix product, as a file stores them.

    Attributes:
        name: The operator's own name.
        bits: Bits of a weight: 32 for float32, 16 for float16, less for integers.
        channels: Number of output channels.
        begin: Place of the weights in the file beside, in bytes; None where the file
            itself has them.
        sizes: Sizes of the weights, of what belongs to them (the scales of integers,
            the bias), in bytes and in the order in which they are stored.

    """

    name: str
    bits: int
    channels: int
    begin: int | None
    sizes: tuple[int, ...]

    @property
    def stored_bytes(self) -> int:
        """The size of all that is stored for the layer."""
        return sum(self.sizes)


def stored(path: Path) -> list[StoredLayer]:
    """Return the layers whose weights the file at `path` rounds or could round.

    Raises:
        ValueError: It is no ``.mnn`` file, or it is cut off.

    """
    return _read(path, _stored)


def content(path: Path) -> bytes:
    """Return the bytes of a file without the id that each conversion draws anew.

    Raises:
        ValueError: It is no ``.mnn`` file, or it is cut off.

    """
    drawn = _read(path, lambda net: _text(net, _at(net, _NET_ID)))
    return path.read_bytes().replace(drawn.encode(), b"", 1)


def operators(path: Path) -> list[Operator]:
    """Return the operators of the file at `path`, in order.

    Raises:
        ValueError: It is no ``.mnn`` file, or it is cut off.

    """
    return _read(path, _operators)


def values_in(path: Path) -> frozenset[str]:
    """Return the names of the values that the operators of a file make.

    A value of the exported graph that is not among them is computed inside another
    operator. The insides of a branch or a loop are not read.

    Raises:
        ValueError: It is no ``.mnn`` file, or it is cut off.

    """
    return frozenset(name for one in operators(path) for name in one.makes)


def _read(path: Path, what: Callable[[Table], T]) -> T:
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return what(Table(data, encode.Get(packer.uoffset, data, 0)))
    except (struct.error, IndexError, TypeError, ValueError) as error:
        msg = f"{path.name} cannot be read as an .mnn file ({error})."
        raise ValueError(msg) from error


def converted_by(path: Path) -> str:
    """Return the version of the converter that made a file; empty if it is unknown."""
    try:
        version = _read(path, _version)
    except ValueError:
        return ""
    return version if re.fullmatch(r"\d+(\.\d+)*", version) else ""


def lacking_mnn(path: Path, beside: Path) -> str:
    """Return a clause about an operator whose weights the file beside lacks.

    MNN itself reads past the end of a file that is too short, and computes with that.

    `beside` is the file that holds the weights of `path`; it may be missing.

    Returns:
        The clause; empty where `beside` holds all weights that `path` needs.

    Raises:
        ValueError: There is no ``.mnn`` file at `path`, or it is cut off.

    """
    present = beside.stat().st_size if beside.is_file() else 0
    name, needed = _read(path, _farthest)
    if needed <= present:
        return ""
    there = f"has {present:,} bytes" if beside.is_file() else "is not there"
    return (
        f"{path.name} keeps weights of {name!r} in {beside.name} up to byte "
        f"{needed:,}, and that file {there}"
    )


def values_made(found: Iterable[Operator]) -> dict[str, str]:
    """Return each operator whose value has another name than itself, to that name.

    The converter computes a ReLU in the convolution or the sum before it; that operator
    keeps its name and makes the ReLU's value. The converter also moves changes of
    layout behind elementwise operators. The names of the values keep their order, so
    they belong to other operators from then on: an elementwise operator makes the value
    of its own name, and a change of layout that of the operator before it.

    >>> relu = Operator(name="conv2d", reads=("x",), makes=("relu",))
    >>> silu = Operator(name="silu", reads=("linear",), makes=("Convert5",))
    >>> moved = Operator(name="Convert5", reads=("Convert5",), makes=("silu",))
    >>> values_made([relu, silu, moved])
    {'conv2d': 'relu', 'Convert5': 'silu'}
    """
    listed = [one for one in found if one.makes]
    by_name = {one.name: one for one in listed}
    values = {one.makes[0] for one in listed}
    makers: dict[str, str] = {}
    made: dict[str, str] = {}
    for one in listed:
        if one.name in values - {one.makes[0], *makers}:
            made[one.name] = one.name  # it was moved in front
        elif one.name in makers and one.reads and one.reads[0] in makers:
            made[one.name] = made[makers[one.reads[0]]]
        else:
            made[one.name] = _end(one, by_name)
        makers[one.makes[0]] = one.name
    return {name: value for name, value in made.items() if value != name}


def tensors_of(
    found: Sequence[Operator], made: Mapping[str, str], wanted: Collection[str]
) -> dict[str, str]:
    """Return wanted values, each to the name that it has in the file's own graph.

    A value may stand there several times, in two layouts; its own name is preferred.

    >>> root = Operator(name="root", reads=("product",), makes=("Convert5",))
    >>> moved = Operator(name="Convert5", reads=("Convert5",), makes=("root",))
    >>> tensors_of([root, moved], values_made([root, moved]), {"root"})
    {'root': 'root'}
    """
    held = {one.makes[0]: made.get(one.name, one.name) for one in found if one.makes}
    tensors = {value: tensor for tensor, value in held.items() if value in wanted}
    # An operator that MNN adds, or a later output of one, has its own name alone.
    own = {name: name for name in wanted if held.get(name, name) == name}
    return {**tensors, **own}


def values_asked(
    found: Sequence[Operator],
    made: Mapping[str, str],
    wanted: Collection[str],
    suffix: str,
) -> dict[str, str]:
    """Return what a module is asked for in the place of a session's callback.

    A callback names the operator; a module is asked for a name of the file, which may
    be that of another value.

    Args:
        found: The file's operators, in order.
        made: What `values_made` returns for them.
        wanted: Names of wanted values.
        suffix: What may stand behind a wanted name.

    Returns:
        Names in the file, to the names of the values, in the operators' order.

    >>> silu = Operator(name="silu", reads=("linear",), makes=("Convert5",))
    >>> moved = Operator(name="Convert5", reads=("Convert5",), makes=("silu",))
    >>> split = Operator(name="a", reads=("silu",), makes=("a", "b"))
    >>> found = [silu, moved, split]
    >>> values_asked(found, values_made(found), {"silu", "b"}, "__made")
    {'Convert5': 'silu', 'b': 'b'}
    """
    operators_named = {one.name for one in found}
    asked: dict[str, str] = {}
    for one in found:
        if not one.reads or not one.makes:
            continue
        name = made.get(one.name, one.name)
        if all(each.removesuffix(suffix) in wanted for each in (one.name, name)):
            asked[one.makes[0]] = name
        for other in one.makes:
            # A name that an operator has as well may have moved to another value.
            if other.removesuffix(suffix) in wanted and other not in operators_named:
                asked.setdefault(other, other)
    return asked


def _end(start: Operator, by_name: Mapping[str, Operator]) -> str:
    value = start.makes[0]
    passed = {start.name}
    while value not in passed and value in by_name and value in by_name[value].reads:
        passed.add(value)
        value = by_name[value].makes[0]
    return value


def _version(net: Table) -> str:
    at = _at(net, _NET_EXTRA)
    if not at:
        return ""
    extra = Table(net.Bytes, net.Indirect(at))
    return _text(extra, _at(extra, _EXTRA_VERSION))


def _operators(net: Table) -> list[Operator]:
    names = [_text(net, place) for place in _places(net, _NET_NAMES)]
    every = (net.Indirect(place) for place in _places(net, _NET_OPERATORS))
    return [_operator(Table(net.Bytes, at), names) for at in every]


def _farthest(net: Table) -> tuple[str, int]:
    """Return the operator whose weights end last in the other file, and their end."""
    ends = {"": 0}
    for place in _places(net, _NET_OPERATORS):
        op = Table(net.Bytes, net.Indirect(place))
        kind, parameters = _at(op, _OP_KIND), _at(op, _OP_PARAMETERS)
        if not kind or not parameters:
            continue
        field = _BESIDE.get(op.Get(Uint8Flags, kind))
        if field is not None:
            held = Table(net.Bytes, op.Indirect(parameters))
            places = _places(held, field, 2 * _ENTRY)
            name = _text(op, _at(op, _OP_NAME))
            ends[name] = sum(held.Get(Int64Flags, one) for one in places)
    return max(ends.items(), key=lambda item: item[1])


def _stored(net: Table) -> list[StoredLayer]:
    found = []
    for place in _places(net, _NET_OPERATORS):
        op = Table(net.Bytes, net.Indirect(place))
        kind, parameters = _at(op, _OP_KIND), _at(op, _OP_PARAMETERS)
        if kind and parameters and op.Get(Uint8Flags, kind) == _CONVOLUTION:
            held = Table(net.Bytes, op.Indirect(parameters))
            layer = _layer(held, _text(op, _at(op, _OP_NAME)))
            # A convolution whose weights are computed stores none.
            if layer.sizes and layer.sizes[0]:
                found.append(layer)
    return found


def _layer(held: Table, name: str) -> StoredLayer:
    bits, inside = 32, [_CONV_WEIGHT]
    rounded = held
    if at := _at(held, _CONV_ROUNDED):
        rounded = Table(held.Bytes, held.Indirect(at))
        kind = _number(rounded, _ROUNDED_TYPE)
        bits = {_HALF: 16, _BYTES: 8}.get(kind) or _number(rounded, _ROUNDED_BITS)
        inside = [_ROUNDED_BUFFER, _ROUNDED_SCALES]
    external = _places(held, _CONV_EXTERNAL, 2 * _ENTRY)
    begin, sizes = None, [held.Get(Int64Flags, one) for one in external]
    if sizes:
        begin = sizes.pop(0)
    else:
        widths = {_ROUNDED_BUFFER: 1} if inside[1:] else {}
        sizes = [len(_places(rounded, f)) * widths.get(f, _ENTRY) for f in inside]
        sizes.append(len(_places(held, _CONV_BIAS)) * _ENTRY)
    common = Table(held.Bytes, held.Indirect(_at(held, _CONV_COMMON)))
    return StoredLayer(
        name=name,
        bits=bits or 32,
        channels=_number(common, _COMMON_OUTPUTS),
        begin=begin,
        sizes=tuple(sizes),
    )


def _number(table: Table, field: int) -> int:
    at = _at(table, field)
    return int(table.Get(Int32Flags, at)) if at else 0


def _operator(op: Table, names: list[str]) -> Operator:
    def named(field: int) -> tuple[str, ...]:
        numbers = (op.Get(Int32Flags, place) for place in _places(op, field))
        return tuple(names[number] for number in numbers)

    return Operator(
        name=_text(op, _at(op, _OP_NAME)),
        reads=named(_OP_READS),
        makes=named(_OP_MAKES),
    )


def _places(table: Table, field: int, size: int = _ENTRY) -> range:
    """Return the places of the entries of a table's vector, of `size` bytes each."""
    at = _at(table, field)
    if not at:
        return range(0)
    offset = at - table.Pos
    start = table.Vector(offset)
    return range(start, start + size * table.VectorLen(offset), size)


def _at(table: Table, field: int) -> int:
    """Return the place of a table's field, or 0 if the table lacks it."""
    # The index of a table begins with two sizes, of two bytes each.
    offset = table.Offset(4 + 2 * field)
    return table.Pos + offset if offset else 0


def _text(table: Table, place: int) -> str:
    if not place:
        return ""
    return bytes(table.String(place)).decode("utf-8", errors="replace")
