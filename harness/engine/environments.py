"""Python environments of a runtime's versions, beside the store: their list and size.

A plug-in makes them (`harness.engine.pythons`); `parity store` lists and removes them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.core.entry import Entry
from harness.core.environment import installed
from harness.core.permissions import is_private
from harness.core.runtime import Runtime
from harness.core.store_root import cache_folder, local_root
from harness.engine.large_files import on_disk
from harness.engine.pythons import in_order, is_version
from harness.engine.store import IN_USE_S, Store

FOLDER: Final = "versions"


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


def place() -> Path:
    """Return the folder of all environments: in the store where that is private.

    What lies there is run, so others must not write to it. A store may be shared.
    """
    root = local_root().absolute()
    there = next((one for one in (root / FOLDER, root) if one.exists()), None)
    if there and not is_private(there):
        root = cache_folder()
    return root / FOLDER


def installed_versions(declared: Runtime) -> dict[str, Path]:
    """Return the Python of each version of a runtime that is installed already."""
    name, tag = distribution_of(declared), sys.implementation.cache_tag
    found = {
        folder.name.removeprefix(f"{name}-").removesuffix(f"-{tag}"): folder
        for folder in place().glob(f"{name}-*-{tag}")
        if folder.is_dir() and is_private(folder)
    }
    found = {one: folder for one, folder in found.items() if is_version(one)}
    for folder in found.values():
        os.utime(folder)
    return {one: found[one] / "bin" / "python" for one in in_order(found)}


def environments(root: Path) -> Iterator[VersionEnvironment]:
    """Yield the environments of versions beside the store at `root`."""
    for folder in sorted((root / FOLDER).glob("*/")):
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
    rest_bytes = sum(user.size_bytes for user in users)
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


def distribution_of(declared: Runtime) -> str:
    """Return the package of a runtime, of which each environment has a version."""
    return declared.distributions[-1]  # the last one is the plain build
