"""Read a dump of somebody's own program as a trace."""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.lib import format as npy

from harness.core.case import Case
from harness.core.errors import SuiteError
from harness.core.received import DamagedError, check_plain, convert
from harness.measure.received_arrays import ARRAY_BYTES, Arrays, copy_array
from harness.plugins.elsewhere.form import LAYERS, OUTPUTS, About, Value
from harness.plugins.elsewhere.traced import ABOUT, most_output_bytes

NAME = "dump"
"""Name of the device of a dump that is given no other."""

_Opened = AbstractContextManager[tuple[IO[bytes], int]]
"""An open ``.npy`` file, and its size in bytes."""


def is_trace(path: Path) -> bool:
    """Whether a file has the facts of a bundle's trace; a damaged one counts as one."""
    if path.is_dir():
        return False
    try:
        check_plain(path)
        if not (path.suffix == ".npz" or zipfile.is_zipfile(path)):
            return False
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                return False  # it is one array, whatever its name says
        with Arrays(path) as arrays:
            return ABOUT in arrays
    except (OSError, DamagedError):
        return True


def as_trace(path: Path, case: Case, names: Path | None, into: Path) -> About:
    """Write a dump as a trace, and return what the trace says about itself.

    `path` is a folder of .npy files, or an .npz file. `names` is a TOML file from names
    in the dump to the case's; None for equal names. `into` is the path of the trace,
    where no file is yet. The arrays are copied block by block.

    Raises:
        SuiteError: The dump cannot be read, lacks an output, or has two arrays for one.

    """
    with zipfile.ZipFile(into, "x") as made:
        told = About(
            name=NAME,
            case=case.id,
            files={},
            entries=(),
            samples={},
            layers="all",
            version="own program",
            machine="unknown",
            log="",
            values=tuple(_copied(path, case, _names(names), made)),
        )
        text = np.frombuffer(msgspec.json.encode(told), np.uint8)
        with made.open(f"{ABOUT}.npy", "w") as file:
            npy.write_array(file, text, allow_pickle=False)
    outputs = [spec.name for spec in case.component.outputs]
    for sample in dict.fromkeys(value.sample for value in told.values):
        there = {value.name for value in told.values if value.sample == sample}
        if lacking := [name for name in outputs if name not in there]:
            msg = (
                f"{path} lacks the output {lacking[0]!r} of {case.subject} for "
                f"{sample}; it has {sorted(there)}. Name it so, or say with --names "
                "which array it is."
            )
            raise SuiteError(msg)
    return told


def _copied(
    path: Path, case: Case, ours: dict[str, str], made: zipfile.ZipFile
) -> Iterator[Value]:
    """Copy each array of a dump into a trace, and yield what the trace says of it."""
    outputs = {spec.name for spec in case.component.outputs}
    seen: dict[tuple[str, str], str] = {}
    try:
        for own_sample, own_name, opened in _arrays(path):
            sample, name = (
                own_sample or case.samples[0].id,
                ours.get(own_name, own_name),
            )
            if (sample, name) in seen:
                msg = (
                    f"{path} has two arrays that are {name!r} of {sample}, "
                    f"{seen[sample, name]!r} and {own_name!r}; leave one out, or give "
                    "it another name with --names."
                )
                raise SuiteError(msg)
            seen[sample, name] = own_name
            is_output, key = name in outputs, f"v{len(seen)}"
            most = most_output_bytes(case, sample) if is_output else ARRAY_BYTES
            with (
                opened as (file, size),
                made.open(f"{key}.npy", "w", force_zip64=True) as copy,
            ):
                found = copy_array(file, size, copy, most)
            value = {
                "kind": OUTPUTS if is_output else LAYERS,
                "sample": sample,
                "name": name,
                "array": key,
                "shape": found.shape,
                "dtype": found.dtype.str,
                "sketched": False,
            }
            yield convert(value, Value)
    except (OSError, DamagedError) as error:
        msg = (
            f"{path} cannot be read as a dump ({error}); it is a folder of .npy files, "
            "or an .npz file."
        )
        raise SuiteError(msg) from error


def _names(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f'{path} cannot be read as TOML ({error}); write `theirs = "ours"`.'
        raise SuiteError(msg) from error
    return {str(theirs): str(name) for theirs, name in told.items()}


def _arrays(path: Path) -> Iterator[tuple[str, str, _Opened]]:
    """Yield sample, name and array; the sample is empty where none is named."""
    if path.is_dir():
        for file in sorted(path.rglob("*.npy")):
            place = file.relative_to(path).with_suffix("").as_posix()
            sample, _, name = place.rpartition("/")
            yield sample, name, _opened(file)
        return
    with Arrays(path, most_total=ARRAY_BYTES) as arrays:
        for key in arrays:
            sample, _, name = key.rpartition("/")
            yield sample, name, arrays.opened(key)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    try:
        check_plain(path)
        with path.open("rb") as file:
            yield file, path.stat().st_size
    except DamagedError as error:
        msg = f"{path.name}: {error}"
        raise DamagedError(msg) from error
