"""Read arrays that somebody else may have sent: numbers only, and bounded in memory.

`np.load` takes the memory that a header declares before it reads any number, and it
unpacks whatever it finds. Nothing in the harness calls it for a file that was received.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.lib import format as npy

from harness.core.received import DamagedError, in_a_clause

ARRAY_BYTES = 4 << 30
"""Largest size of one array: a picture's network of full size has values of 2 GB."""

_MEMBERS = 1 << 20
"""Largest number of arrays in one file."""

_BLOCK_BYTES = 1 << 20


def read_array(path: Path, most_bytes: int = ARRAY_BYTES) -> np.ndarray:
    """Return the numbers of an ``.npy`` file; memory is taken as they are read.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is no such file, holds no numbers, is cut short, or is too
            large.

    """
    size = path.stat().st_size
    with path.open("rb") as file, in_a_clause():
        return _numbers(file, size, most_bytes)


class Arrays(Mapping[str, np.ndarray]):
    """The arrays of an ``.npz`` file by name; each is read when it is asked for.

    Args:
        path: The file.
        most_bytes: Largest size of one array.
        most_total: Largest size of all arrays together; None for no such limit.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is no such file, or its arrays are too many or too large. An
            array that is damaged raises it when it is read.

    """

    def __init__(
        self,
        path: Path,
        most_bytes: int = ARRAY_BYTES,
        most_total: int | None = None,
    ) -> None:
        self._most_bytes = most_bytes
        file = path.open("rb")
        try:
            with in_a_clause():
                self._zip = zipfile.ZipFile(file)
                self._members = self._named(most_total)
        except BaseException:
            file.close()
            raise
        self._file = file

    def _named(self, most_total: int | None) -> dict[str, zipfile.ZipInfo]:
        members = self._zip.infolist()
        if len(members) > _MEMBERS:
            msg = f"it has {len(members):,} arrays, and {_MEMBERS:,} are read at most"
            raise DamagedError(msg)
        named: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in named:
                msg = f"it has two arrays {name!r}"
                raise DamagedError(msg)
            named[name] = member
        total = sum(member.file_size for member in members)
        if most_total is not None and total > most_total:
            msg = (
                f"its arrays have {total:,} bytes, and {most_total:,} are read at most"
            )
            raise DamagedError(msg)
        return named

    def __getitem__(self, name: str) -> np.ndarray:
        member = self._members[name]
        try:
            with in_a_clause(), self._zip.open(member) as file:
                return _numbers(file, member.file_size, self._most_bytes)
        except DamagedError as error:
            msg = f"the array {name!r}: {error}"
            raise DamagedError(msg) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        """Whether there is an array of that name; it is not read."""
        return name in self._members

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _numbers(file: IO[bytes], size: int, most_bytes: int) -> np.ndarray:
    """Return the numbers of an open ``.npy`` file of `size` bytes."""
    version = npy.read_magic(file)
    if version not in {(1, 0), (2, 0)}:
        msg = f"it has NumPy's format {version[0]}.{version[1]}"
        raise DamagedError(msg)
    read_header = (
        npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    )
    shape, by_column, dtype = read_header(file)
    if dtype.hasobject or dtype.kind not in "biufc" or dtype.subdtype is not None:
        msg = f"it holds {dtype}, and only numbers are read"
        raise DamagedError(msg)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > min(most_bytes, size):
        limit = min(most_bytes, size)
        msg = f"it declares {count:,} numbers, and at most {limit:,} bytes are there"
        if count * dtype.itemsize > most_bytes:
            msg = f"it declares {count:,} numbers, and {most_bytes:,} bytes are read"
        raise DamagedError(msg)
    flat = np.empty(count, dtype)
    view = flat.view(np.uint8).data if count else memoryview(b"")
    at = 0
    while at < len(view):
        block = file.read(min(_BLOCK_BYTES, len(view) - at))
        if not block:
            msg = f"it ends {len(view) - at:,} bytes early"
            raise DamagedError(msg)
        view[at : at + len(block)] = block
        at += len(block)
    return flat.reshape(shape, order="F" if by_column else "C")
