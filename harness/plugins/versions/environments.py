"""Versions of a runtime: each has a Python environment of its own beside the store.

The package index says which versions exist, and installs them. Nothing else that is
installed changes.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from filelock import FileLock

from harness.core.errors import SpecError, StageError
from harness.core.outcome import Outcome
from harness.core.permissions import is_private, make_folders
from harness.core.program import run_program
from harness.core.runtime import Runtime
from harness.engine.environments import (
    at_home,
    distribution_of,
    pip_command,
    place,
)
from harness.engine.pythons import in_order, is_version

_WHEELS: Final = "--only-binary=:all:"
_NUMPY: Final = ("numpy", "numpy<2")
"""Wheels that were compiled with NumPy 1 do not say that they cannot use NumPy 2."""

_COMPILED_WITH_1: Final = "compiled using NumPy 1.x"


def python_of(declared: Runtime, version: str) -> Path:
    """Return the Python that has a version of a runtime; install it once.

    Raises:
        StageError: There is no such version for this Python (`Outcome.LOAD`), or it
            cannot be installed or imported (`Outcome.ABSENT`).

    """
    name = distribution_of(declared)
    if not is_version(version):
        msg = f"{version!r} is no version of {name}; write one such as 3.5.0."
        raise StageError(msg, outcome=Outcome.LOAD)
    made = f"{name}-{version}-{sys.implementation.cache_tag}"
    folder = place() / made
    make_folders(folder.parent)
    with FileLock(f"{folder}.lock"):
        if not (folder / "bin" / "python").exists() or not is_private(folder):
            # The Python that it was made with may be gone.
            shutil.rmtree(folder, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                # A folder that appears by one rename is whole.
                _install(Path(scratch, "made"), declared, f"{name}=={version}")
                Path(scratch, "made").rename(folder)
        os.utime(folder)
    return folder / "bin" / "python"


def available(declared: Runtime) -> tuple[str, ...]:
    """Return the versions that this Python can install, the oldest first.

    Raises:
        StageError: The package index cannot be reached.

    """
    name = distribution_of(declared)
    try:
        said = run_program(
            [*pip_command(), "index", "versions", _WHEELS, name],
            f"the package index cannot be reached, or has no {name}",
            at_home(),
        )
    except SpecError as error:
        raise StageError(str(error), outcome=Outcome.ABSENT) from None
    found = re.search(r"Available versions: (.+)", said)
    return in_order(found[1].split(", ") if found else ())


def no_version(declared: Runtime, version: str, there: Sequence[str]) -> str:
    """Return the sentence about a version that this Python cannot install."""
    here = f"Python {platform.python_version()} on {platform.system()} "
    return (
        f"The package index has no wheel of {distribution_of(declared)} {version} for "
        f"{here}{platform.machine()}; it has {', '.join(there) or 'none'}."
    )


def _install(folder: Path, declared: Runtime, wanted: str) -> None:
    """Put numpy and one runtime into a new environment, and import the runtime there.

    Raises:
        StageError: The runtime cannot be installed or imported.

    """
    python = folder / "bin" / "python"
    if uv := shutil.which("uv"):
        make = [uv, "venv", "--quiet", "--python", sys.executable, str(folder)]
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        install = [*pip_command(), "--python", str(python), "install", "--quiet"]
    try:
        run_program(make, f"no environment can be made for {wanted}", at_home())
        for numpy in _NUMPY:
            packages = ["--no-deps", _WHEELS, numpy, wanted]
            words = f"{wanted} cannot be installed"
            run_program([*install, *packages], words, at_home())
            # Isolated, because modules beside the driver hide those of Python.
            driver = str(declared.home / "driver.py")
            words = f"{wanted} is installed and cannot be imported"
            try:
                said = run_program([str(python), "-I", driver], words)
            except SpecError as error:
                words = str(error)
                continue
            if _COMPILED_WITH_1 not in said:
                return
    except SpecError as error:
        there = available(declared)  # raises if the index cannot be reached
        _, _, version = wanted.partition("==")
        words = str(error)
        if version not in there:
            words = no_version(declared, version, there)
            raise StageError(words, outcome=Outcome.LOAD) from None
    raise StageError(words, outcome=Outcome.ABSENT)
