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
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from packaging.version import InvalidVersion, Version

from harness.core.entry import Entry
from harness.core.environment import installed
from harness.core.errors import SpecError, StageError
from harness.core.outcome import Outcome
from harness.core.permissions import is_private, make_folders
from harness.core.program import run_program
from harness.core.runtime import Runtime
from harness.engine.large_files import on_disk
from harness.engine.store import IN_USE_S, Store, local_root
from harness.engine.store_folder import cache_folder

_WHEELS: Final = "--only-binary=:all:"
_NUMPY: Final = ("numpy", "numpy<2")
"""Wheels that were compiled with NumPy 1 do not say that they cannot use NumPy 2."""

_COMPILED_WITH_1: Final = "compiled using NumPy 1.x"
_FOLDER: Final = "versions"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionEnvironment:
    """The Python environment of one version of a runtime.

    Attributes:
        path: Its folder; one that an ended installation left has no version's name.
        size_bytes: Size of its files. A file that uv shares with its cache counts too.
        used_s: Time of the last use, in seconds since the epoch.

    """

    path: Path
    size_bytes: int
    used_s: float


def python_of(declared: Runtime, version: str) -> Path:
    """Return the Python that has a version of a runtime; install it once.

    Raises:
        StageError: There is no such version for this Python (`Outcome.LOAD`), or it
            cannot be installed or imported (`Outcome.ABSENT`).

    """
    name = _distribution(declared)
    if not _is_version(version):
        msg = f"{version!r} is no version of {name}; write one such as 3.5.0."
        raise StageError(msg, outcome=Outcome.LOAD)
    made = f"{name}-{version}-{sys.implementation.cache_tag}"
    folder = _place() / made
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


def _place() -> Path:
    """Return the folder of all environments: in the store where that is private.

    What lies there is run, so others must not write to it. A store may be shared.
    """
    root = local_root().absolute()
    there = next((one for one in (root / _FOLDER, root) if one.exists()), None)
    if there and not is_private(there):
        root = cache_folder()
    return root / _FOLDER


def installed_versions(declared: Runtime) -> dict[str, Path]:
    """Return the Python of each version of a runtime that is installed already."""
    name, tag = _distribution(declared), sys.implementation.cache_tag
    found = {
        folder.name.removeprefix(f"{name}-").removesuffix(f"-{tag}"): folder
        for folder in _place().glob(f"{name}-*-{tag}")
        if folder.is_dir() and is_private(folder)
    }
    found = {one: folder for one, folder in found.items() if _is_version(one)}
    for folder in found.values():
        os.utime(folder)
    return {one: found[one] / "bin" / "python" for one in in_order(found)}


def environments(root: Path) -> Iterator[VersionEnvironment]:
    """Yield the environments of versions beside the store at `root`."""
    for folder in sorted((root / _FOLDER).glob("*/")):
        with suppress(FileNotFoundError):  # another process removes it
            size_bytes = sum(
                Path(parent, name).lstat().st_size
                for parent, _, names in os.walk(folder)
                for name in names
            )
            used_s = folder.stat().st_mtime
            yield VersionEnvironment(path=folder, size_bytes=size_bytes, used_s=used_s)


def prune_environments(
    store: Store, max_bytes: int, *, spared_s: float = IN_USE_S
) -> tuple[VersionEnvironment, ...]:
    """Remove environments that were used longest ago, of all that a store has.

    Entries and environments are put in one order by their last use. The first of them
    may go, until the rest is small enough. `Store.prune` removes the entries.

    Args:
        store: The store that the environments lie beside.
        max_bytes: Size that entries and environments may have together, in bytes.
        spared_s: An environment that was used within so many seconds stays.

    Returns:
        The environments that were removed.

    """
    entries, made = list(store.entries()), list(environments(store.root))
    both: list[Entry | VersionEnvironment] = [*entries, *made]
    users = Counter(file for entry in entries for file in on_disk(entry))
    rest_bytes = sum(one.size_bytes for one in users)
    rest_bytes += sum(one.size_bytes for one in made)
    newest_s = time.time() - spared_s
    removed = []
    for one in sorted(both, key=lambda one: one.used_s):
        if rest_bytes <= max_bytes or one.used_s > newest_s:
            break
        if isinstance(one, VersionEnvironment):
            if not _remove(one.path, newest_s):
                continue
            removed.append(one)
            rest_bytes -= one.size_bytes
        else:
            files = on_disk(one)
            users.subtract(files)
            rest_bytes -= sum(file.size_bytes for file in files if not users[file])
    return tuple(removed)


def _remove(folder: Path, newest_s: float) -> bool:
    """Remove an environment, unless a process has it, or has used it since."""
    held = FileLock(f"{folder}.lock", timeout=0)
    with suppress(Timeout, FileNotFoundError), held:
        if folder.stat().st_mtime <= newest_s:
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                # A folder that disappears by one rename is never seen half removed.
                folder.rename(Path(scratch, "removed"))
            return True
    return False


def available(declared: Runtime) -> tuple[str, ...]:
    """Return the versions that this Python can install, the oldest first.

    Raises:
        StageError: The package index cannot be reached.

    """
    name = _distribution(declared)
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


def in_order(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions, the oldest first.

    What is no version comes first: a target may say anything.

    >>> in_order(["3.10.0", "3.9.1"])
    ('3.9.1', '3.10.0')
    """
    least = Version("0.dev0")
    return tuple(
        sorted(versions, key=lambda one: Version(one) if _is_version(one) else least)
    )


def _is_version(text: str) -> bool:
    """Whether a text is a version, and so no path and no option of pip."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return text == text.strip()


def no_version(declared: Runtime, version: str, there: Sequence[str]) -> str:
    """Return the sentence about a version that this Python cannot install."""
    here = f"Python {platform.python_version()} on {platform.system()} "
    return (
        f"The package index has no wheel of {_distribution(declared)} {version} for "
        f"{here}{platform.machine()}; it has {', '.join(there) or 'none'}."
    )


def _distribution(declared: Runtime) -> str:
    return declared.distributions[-1]  # the last one is the plain build


def at_home() -> Path:
    """Return the folder where packages are installed from.

    uv reads settings of the current folder and of those above it, which may have been
    downloaded: they say where packages come from.
    """
    home = Path.home()
    return home if home.is_dir() else Path("/")


def pip_command() -> list[str]:
    """Return the words that start pip; uv brings it where this Python has none."""
    # `find_spec` would run what setuptools puts before imports of pip, which may warn.
    if installed(("pip",)):
        return [sys.executable, "-m", "pip"]
    return ["uv", "tool", "run", "--python", sys.executable, "pip"]


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
