"""A reference run on disk: every value once, read through a memory map.

A trace has two files. ``values.bin`` has the arrays one after another; values of equal
bytes, such as a value and its reshaped copy, share theirs. ``values.json`` has the
position and the noise floor of each.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xxhash

from harness.core.case import Component
from harness.core.entry import Entry
from harness.core.errors import StoreError
from harness.core.kinds import Count, Size
from harness.core.received import DamagedError, in_a_clause, read_json
from harness.measure.named_arrays import load_arrays

OUTPUT = "output:"
"""Prefix of the module's outputs in a trace, which also holds the program's values."""

UNREAD = "unread:"
"""Prefix of the places of a value that a mask takes out, as packed bits."""

VALUES = "values.bin"
INDEX = "values.json"
_ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Position and type of one value in a trace.

    Attributes:
        dtype: Dtype as NumPy names it.
        shape: Shape of the value.
        offset_bytes: Offset from the start of ``values.bin``, in bytes.
        floor_rms: Rms of the float32 value's error against float64, in the value's own
            unit; None if there was no float64 run.
        is_mask: Whether the value masks a softmax, by the ``mask`` rule of `align`.

    """

    dtype: str
    shape: tuple[Count, ...]
    offset_bytes: Count
    floor_rms: Size | None = None
    is_mask: bool = False

    @property
    def size_bytes(self) -> int:
        """Size of the value, in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded values by name; the arrays are read-only views of the file.

    Attributes:
        places: Position of each value in the file, by name.

    """

    places: Mapping[str, Slot]
    _bytes: np.ndarray = field(repr=False)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, and of results that are read from them."""
        return tuple(n.removeprefix(OUTPUT) for n in self if n.startswith(OUTPUT))

    def __getitem__(self, name: str) -> np.ndarray:
        place = self.places[name]
        end = place.offset_bytes + place.size_bytes
        data = self._bytes[place.offset_bytes : end]
        return data.view(np.dtype(place.dtype)).reshape(place.shape)

    def forget(self, name: str) -> None:
        """Release a value's memory pages; reading the value maps them again.

        Until then a page that was read counts as memory of this process.
        """
        mapped = getattr(self._bytes, "_mmap", None)
        if mapped is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        place = self.places[name]
        start = -(-place.offset_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        length = place.offset_bytes + place.size_bytes - start
        if length > 0:
            mapped.madvise(mmap.MADV_DONTNEED, start, length)

    def unread(self, name: str) -> np.ndarray | None:
        """Return where a mask takes a value out, in its shape; None for nowhere."""
        if UNREAD + name not in self.places:
            return None
        shape = self.places[name].shape
        bits = np.unpackbits(self[UNREAD + name], count=math.prod(shape))
        return bits.view(np.bool_).reshape(shape)

    def floor_rms(self, name: str) -> float | None:
        """Return the value's noise floor, in the value's own unit, or None."""
        return self.places[name].floor_rms


def open_trace(folder: Path) -> Trace:
    """Open a recorded trace through a memory map.

    Raises:
        StoreError: A file is missing or shorter than the index says, or the index is
            damaged.

    """
    try:
        places = read_json(folder / INDEX, dict[str, Slot])
        for name, place in places.items():
            _check_dtype(name, place.dtype)
        size = (folder / VALUES).stat().st_size
    except (OSError, DamagedError) as error:
        msg = f"{folder} holds no readable trace: {error}. Run `parity store verify`."
        raise StoreError(msg) from error
    ends = [place.offset_bytes + place.size_bytes for place in places.values()]
    if size < max(ends, default=0):
        msg = (
            f"{folder / VALUES} holds {size:,} bytes, shorter than the {max(ends):,} "
            "that its index says. Run `parity store verify`."
        )
        raise StoreError(msg)
    data = (
        np.memmap(folder / VALUES, dtype=np.uint8, mode="r")
        if size
        else np.empty(0, dtype=np.uint8)
    )
    return Trace(places, data)


def _check_dtype(name: str, dtype: str) -> None:
    """Refuse a dtype that is not of numbers: it could have parts or objects.

    Raises:
        DamagedError: It is none of those.

    """
    with in_a_clause():
        found = np.dtype(dtype)
    if found.kind not in "biufc" or found.name != dtype:
        msg = f"the value {name!r} holds {dtype!r}, and only numbers are read"
        raise DamagedError(msg)


def load_inputs(entry: Entry, component: Component) -> dict[str, np.ndarray]:
    """Return a sample's arrays, which `save_arrays` wrote, in the order of ``forward``.

    Raises:
        StoreError: The entry is damaged, or lacks an input.

    """
    arrays = arrays_of(entry)
    try:
        return {spec.name: arrays[spec.name] for spec in component.inputs}
    except KeyError as error:
        msg = f"{entry.id} has no array of input {error}. Run `parity store verify`."
        raise StoreError(msg) from None


def arrays_of(entry: Entry) -> dict[str, np.ndarray]:
    """Return all of the arrays that `save_arrays` wrote to an entry, by name.

    Raises:
        StoreError: The entry is damaged.

    """
    try:
        return load_arrays(entry.path)
    except (OSError, DamagedError) as error:
        msg = f"{entry.id} has no readable arrays: {error}. Run `parity store verify`."
        raise StoreError(msg) from error


class TraceWriter:
    """Writes values one by one, equal bytes once; none of them is kept in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO = (folder / VALUES).open("wb")
        self._places: dict[str, Slot] = {}
        self._offsets: dict[bytes, int] = {}

    def add(self, name: str, value: np.ndarray, *, is_mask: bool = False) -> None:
        """Append one value; a second value of the same name is an error."""
        if name in self._places:
            msg = f"{name!r} is recorded twice in one run."
            raise StoreError(msg)
        value = np.asarray(value, order="C")  # ascontiguousarray makes a scalar 1-d
        digest = xxhash.xxh3_128_digest(value.reshape(-1).view(np.uint8).data)
        offset_bytes = self._offsets.get(digest)
        if offset_bytes is None:
            self._file.write(b"\0" * (-self._file.tell() % _ALIGN_BYTES))
            offset_bytes = self._offsets[digest] = self._file.tell()
            value.tofile(self._file)
        self._places[name] = Slot(
            dtype=value.dtype.name,
            shape=tuple(value.shape),
            offset_bytes=offset_bytes,
            is_mask=is_mask,
        )

    def add_unread(self, name: str, unread: np.ndarray) -> None:
        """Append where a mask takes out the value `name`, as booleans in its shape."""
        self.add(UNREAD + name, np.packbits(unread))

    def close(self, floors: Mapping[str, float]) -> int:
        """Write the index with each noise floor; return the number of values."""
        self._file.close()
        rows = {
            name: asdict(place) | {"floor_rms": floors.get(name)}
            for name, place in self._places.items()
        }
        (self._folder / INDEX).write_text(json.dumps(rows), encoding="utf-8")
        return len(rows)

    def view(self) -> Trace:
        """Return the values written so far, to compare with; call before `close`."""
        self._file.flush()
        if not self._file.tell():  # values without elements; no map is of no bytes
            return Trace(dict(self._places), np.empty(0, dtype=np.uint8))
        data = np.memmap(self._folder / VALUES, dtype=np.uint8, mode="r")
        return Trace(dict(self._places), data)
