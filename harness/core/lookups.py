"""Which tables an ONNX file's inputs look rows up in, read without onnx.

A token id beyond the last row is refused by ONNX Runtime, and read from anywhere by
others: what is drawn for such an input must lie below.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.core.onnx_header import (
    GRAPH,
    INITIALIZER,
    TENSOR_NAME,
    UNREADABLE,
    no_onnx,
    read_header,
)
from harness.core.protobuf import fields, text_of

_NODE, _NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR = 1, 1, 2, 4
_TENSOR_SIZE = 1

_SAME_NUMBERS = frozenset(
    ("Cast", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")
)
_SAME_ROWS = frozenset(("Cast", "DequantizeLinear", "Identity"))
"""Operators by which ids stay ids, and a table a table, both the first input."""


def rows_looked_up(path: Path) -> dict[str, int]:
    """Return each input that looks rows up, and how many the shortest table has.

    Raises:
        SuiteError: There is no ONNX file at `path`.

    """
    inputs = tuple(port.name for port in read_header(path).inputs)
    about = path.stat()
    return dict(_rows(path, inputs, about.st_size, about.st_mtime_ns))


@functools.cache
def _rows(
    path: Path, inputs: tuple[str, ...], size: int, _changed: int
) -> tuple[tuple[str, int], ...]:
    try:
        with path.open("rb") as file:
            return tuple(_look_ups(file, size, inputs).items())
    except UNREADABLE as error:
        raise no_onnx(path, error) from None


def _look_ups(file: BinaryIO, size: int, inputs: tuple[str, ...]) -> dict[str, int]:
    tables: dict[str, int] = {}
    nodes: list[tuple[str, list[str], str]] = []
    for number, begin, end in _parts(file, size):
        if number == INITIALIZER:
            tables.update(_table(file, begin, end))
        elif number == _NODE:
            nodes.append(_node(file, begin, end))
    ids = {name: name for name in inputs}
    found: dict[str, int] = {}
    for operator, (first, *rest), made in nodes:
        if operator in _SAME_NUMBERS and first in ids:
            ids[made] = ids[first]
        elif operator in _SAME_ROWS and first in tables:
            tables[made] = tables[first]
        elif operator == "Gather" and first in tables and rest[0] in ids:
            name = ids[rest[0]]
            found[name] = min(tables[first], found.get(name, tables[first]))
    return found


def _parts(file: BinaryIO, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the graph."""
    for number, begin, end in list(fields(file, 0, size)):
        if number == GRAPH:
            yield from list(fields(file, begin, end))


def _table(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield a weight's name and its rows, if it has any."""
    name, sizes = "", []
    for number, at, stop in fields(file, begin, end):
        if number == _TENSOR_SIZE:
            sizes.append(at)
        elif number == TENSOR_NAME:
            name = text_of(file, at, stop)
    if sizes:
        yield name, sizes[0]


def _node(file: BinaryIO, begin: int, end: int) -> tuple[str, list[str], str]:
    """Return a node's operator, what it reads, and the first that it makes."""
    operator, reads, makes = "", [], ""
    for number, at, stop in fields(file, begin, end):
        if number == _NODE_INPUT:
            reads.append(text_of(file, at, stop))
        elif number == _NODE_OUTPUT:
            makes = makes or text_of(file, at, stop)
        elif number == _NODE_OPERATOR:
            operator = text_of(file, at, stop)
    return operator, reads or [""], makes
