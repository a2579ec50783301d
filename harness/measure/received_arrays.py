"""Read arrays that somebody else may have sent: numbers only, and bounded in memory.

`np.load` takes the memory that a header declares before it reads any number, and it
unpacks whatever it finds. Nothing in the harness calls it for a file that was received.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.lib import format as npy

from harness.core.received import DamagedError, check_plain, in_a_clause

ARRAY_BYTES = 4 << 30
"""Largest size of one array: a picture's network of full size has values of 2 GB."""

_LIST_BYTES = 16 << 20
"""Largest size of the list of arrays in one file: 6,000 of them have 0.4 MB. A reader
takes five times as much memory."""

_BLOCK_BYTES = 1 << 20


def read_array(path: Path, most_bytes: int = ARRAY_BYTES) -> np.ndarray:
    """Return the numbers of an ``.npy`` file; memory is taken as they are read.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is no such file, holds no numbers, is cut short, or is too
            large.

    """
    check_plain(path)
    with path.open("rb") as file, in_a_clause():
        return _numbers(file, path.stat().st_size, most_bytes)


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
        check_plain(path)
        file = path.open("rb")
        try:
            with in_a_clause():
                _check_list(file)
                self._zip = zipfile.ZipFile(file)
                self._members = self._named(most_total)
        except BaseException:
            file.close()
            raise
        self._file = file

    def _named(self, most_total: int | None) -> dict[str, zipfile.ZipInfo]:
        members = self._zip.infolist()
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
        with self.opened(name) as (file, size):
            return _numbers(file, size, self._most_bytes)

    def read(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an array of this shape and dtype; another one takes no memory.

        Raises:
            DamagedError: The array is damaged, or has another shape or dtype.

        """
        with self.opened(name) as (file, size):
            return _numbers(file, size, self._most_bytes, (shape, dtype))

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Open an array's ``.npy`` file, and give it and its size in bytes.

        Raises:
            DamagedError: The file is damaged, or a reader in the ``with`` says so.

        """
        member = self._members[name]
        try:
            with in_a_clause(), self._zip.open(member) as file:
                yield file, member.file_size
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


def _check_list(file: IO[bytes]) -> None:
    """Refuse a zip file whose list of members is too long to be read."""
    # `ZipFile` makes an object of each member before anybody can count them.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # noqa: SLF001
    if end and end[zipfile._ECD_SIZE] > _LIST_BYTES:  # type: ignore[attr-defined]  # noqa: SLF001
        msg = f"it has a list of arrays of over {_LIST_BYTES:,} bytes"
        raise DamagedError(msg)


def copy_array(
    file: IO[bytes], size: int, into: IO[bytes], most_bytes: int = ARRAY_BYTES
) -> Declared:
    """Copy an open ``.npy`` file of `size` bytes, block by block; return what it holds.

    Raises:
        DamagedError: It is no such file, holds no numbers, is cut short, or is too
            large.

    """
    with in_a_clause():
        found = _declared(file, size, most_bytes)
        head = {
            "descr": npy.dtype_to_descr(found.dtype),
            "fortran_order": found.by_column,
            "shape": found.shape,
        }
        npy.write_array_header_1_0(into, head)
        for block in _blocks(file, found.size_bytes):
            into.write(block)
    return found


@dataclass(frozen=True, slots=True)
class Declared:
    """What the header of an ``.npy`` file declares.

    Attributes:
        by_column: Whether the numbers are in Fortran's order.

    """

    shape: tuple[int, ...]
    dtype: np.dtype
    by_column: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of all numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def _declared(file: IO[bytes], size: int, most_bytes: int) -> Declared:
    """Read the header of an open ``.npy`` file of `size` bytes, and check it."""
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
    found = Declared(tuple(shape), dtype, by_column)
    limit = min(most_bytes, size)
    if min(shape, default=0) < 0 or found.size_bytes > limit:
        count = math.prod(shape)
        msg = f"it declares {count:,} numbers, and at most {limit:,} bytes are there"
        if found.size_bytes > most_bytes:
            msg = f"it declares {count:,} numbers, and {most_bytes:,} bytes are read"
        raise DamagedError(msg)
    return found


def _numbers(
    file: IO[bytes],
    size: int,
    most_bytes: int,
    wanted: tuple[tuple[int, ...], np.dtype] | None = None,
) -> np.ndarray:
    """Return the numbers of an open ``.npy`` file of `size` bytes."""
    found = _declared(file, size, most_bytes)
    if wanted and (found.shape, found.dtype) != wanted:
        msg = f"it is {found.dtype} {list(found.shape)}, and {wanted[1]} "
        msg += f"{list(wanted[0])} was said"
        raise DamagedError(msg)
    flat = np.empty(math.prod(found.shape), found.dtype)
    view = flat.view(np.uint8).data if flat.size else memoryview(b"")
    at = 0
    for block in _blocks(file, len(view)):
        view[at : at + len(block)] = block
        at += len(block)
    return flat.reshape(found.shape, order="F" if found.by_column else "C")


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a file in blocks."""
    left = size
    while left:
        block = file.read(min(_BLOCK_BYTES, left))
        if not block:
            msg = f"it ends {left:,} bytes early"
            raise DamagedError(msg)
        left -= len(block)
        yield block
