"""Read a dump of somebody's own program as a trace."""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.case import Case
from harness.core.errors import SuiteError
from harness.runtimes.target import bundle_run
from harness.runtimes.target.traced import DAMAGED

NAME = "dump"
"""Name of the device of a dump that is given no other."""


def is_trace(path: Path) -> bool:
    """Whether a file has the facts of a bundle's trace; a damaged one counts as one."""
    if path.is_dir() or not (path.suffix == ".npz" or zipfile.is_zipfile(path)):
        return False
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return "about" in arrays.files
    except TypeError:  # it is one array, whatever its name says
        return False
    except (OSError, *DAMAGED):
        return True


def as_trace(path: Path, case: Case, names: Path | None, into: Path) -> dict[str, Any]:
    """Write a dump as a trace, and return what the trace says about itself.

    `path` is a folder of .npy files, or an .npz file. `names` is a TOML file from names
    in the dump to the case's; None for equal names. `into` is the path of the trace.

    Raises:
        SuiteError: The dump cannot be read, lacks an output, or has two arrays for one.

    """
    ours = _names(names)
    outputs = [spec.name for spec in case.component.outputs]
    first = case.samples[0].id
    trace = bundle_run.BundleTrace(outputs, whole=True)
    seen: dict[tuple[str, str], str] = {}
    for sample, name, array in _arrays(path):
        place = sample or first, ours.get(name, name)
        if place in seen:
            msg = (
                f"{path} has two arrays that are {place[1]!r} of {place[0]}, "
                f"{seen[place]!r} and {name!r}; leave one out, or give it another name "
                "with --names."
            )
            raise SuiteError(msg)
        seen[place] = name
        kind = bundle_run.OUTPUTS if place[1] in outputs else "layers"
        trace.add(kind, *place, array)
    has = dict.fromkeys(value["sample"] for value in trace.values)
    for sample in has:
        there = {value["name"] for value in trace.values if value["sample"] == sample}
        if lacking := [name for name in outputs if name not in there]:
            msg = (
                f"{path} lacks the output {lacking[0]!r} of {case.subject} for "
                f"{sample}; it has {sorted(there)}. Name it so, or say with --names "
                "which array it is."
            )
            raise SuiteError(msg)
    told: dict[str, Any] = {
        "name": NAME,
        "case": case.id,
        "files": {},
        "entries": [],
        "samples": {},
        "layers": "all",
        "version": "own program",
        "machine": "unknown",
        "log": "",
    }
    trace.save(into, told)
    return {**told, "values": trace.values}


def _names(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f'{path} cannot be read as TOML ({error}); write `theirs = "ours"`.'
        raise SuiteError(msg) from error
    return {str(theirs): str(name) for theirs, name in told.items()}


def _arrays(path: Path) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield sample, name and array; the sample is empty where none is named."""
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.npy")):
                sample, _, name = (
                    file.relative_to(path).with_suffix("").as_posix().rpartition("/")
                )
                yield sample, name, np.load(file, allow_pickle=False)
        else:
            with np.load(path, allow_pickle=False) as arrays:
                for key in arrays.files:
                    sample, _, name = key.rpartition("/")
                    yield sample, name, arrays[key]
    except (OSError, *DAMAGED) as error:
        msg = (
            f"{path} cannot be read as a dump ({error}); it is a folder of .npy files, "
            "or an .npz file."
        )
        raise SuiteError(msg) from error
