"""Arrays by name, in files with names of ours.

A name of an input or a value comes from a model's file, so it may be any text: ``a/b``,
``../x``, 300 letters, a line break. It never becomes a part of a path. The files are
numbered, and the names stand in a file beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.core.received import DamagedError, read_json
from harness.measure.received_arrays import read_array

Arrays = Mapping[str, npt.NDArray[Any]]
Run = Callable[[Arrays], Arrays]
"""Function from inputs by name to outputs by name."""

INDEX = "arrays.json"
"""Name of the file that has the arrays' names, in the order of their numbers."""


def save_arrays(arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    """Write arrays of numbers to a folder that has no others yet."""
    for at, value in enumerate(arrays.values()):
        np.save(folder / _file(at), value, allow_pickle=False)
    (folder / INDEX).write_bytes(msgspec.json.encode(list(arrays)))


def load_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Return what `save_arrays` wrote, by name and in the same order.

    Raises:
        OSError: A file cannot be read.
        DamagedError: A file is damaged, or a name stands twice.

    """
    names = read_json(folder / INDEX, list[str])
    if len(set(names)) < len(names):
        msg = f"{INDEX} has a name twice"
        raise DamagedError(msg)
    return {name: read_array(folder / _file(at)) for at, name in enumerate(names)}


def _file(at: int) -> str:
    return f"{at:03}.npy"
