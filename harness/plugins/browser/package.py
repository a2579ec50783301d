"""onnxruntime-web: a folder that npm fills, one for each version."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from filelock import FileLock

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.permissions import PRIVATE, is_private, make_folders
from harness.core.program import ended
from harness.core.received import DamagedError, decode, read_json
from harness.engine.environments import at_home, place
from harness.engine.pythons import in_order
from harness.plugins.browser.targets import WASM, WEBGPU

NAME: Final = "onnxruntime-web"

_BUILDS: Final = {
    WASM: ("ort.wasm.min.mjs", "ort.min.mjs", "ort.min.js"),
    WEBGPU: ("ort.webgpu.min.mjs", "ort.webgpu.min.js"),
}
"""Modules of each device, the newest name first."""

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")

_QUIET: Final = ("--no-update-notifier", "--loglevel=error")
"""What npm says of itself would stand among its answers."""


class _Package(msgspec.Struct, frozen=True):
    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An onnxruntime-web: its version, and the folder of its modules."""

    version: str
    dist: Path


def package_of(named: str, version: str) -> Package:
    """Return the package in a folder that is named, or a version; npm brings it once.

    Raises:
        StageError: The folder has none, or npm has no such version.

    """
    if named:
        return _read(Path(named), "`package` under [target.*] names it")
    # Of `1.30` npm would take the newest, which is another one tomorrow.
    if not _VERSION.fullmatch(version):
        msg = f"{version!r} is no version of {NAME}; write a whole one such as 1.30.0."
        raise StageError(msg, outcome=Outcome.LOAD)
    folder = place() / f"{NAME}-{version}"
    with_package = folder / "node_modules" / NAME
    make_folders(folder.parent)
    with FileLock(f"{folder}.lock"):
        # What lies there is run, so nobody else may write to it.
        if not with_package.is_dir() or not is_private(folder):
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                _install(Path(scratch), version)
                shutil.rmtree(folder, ignore_errors=True)
                # A folder that appears by one rename is whole.
                Path(scratch, "made").rename(folder)
        os.utime(folder)
    return _read(with_package, "remove the folder, and run again")


def available() -> tuple[str, ...]:
    """Return the released versions that npm has, the oldest first.

    Raises:
        StageError: npm is not there, or it does not answer.

    """
    said = _npm(["view", NAME, "versions", "--json"], "npm does not tell its versions")
    try:
        versions = decode(said[said.find("[") : said.rfind("]") + 1], list[str])
    except DamagedError as error:
        msg = f"npm answers with no list of versions of {NAME} ({error})."
        raise StageError(msg, outcome=Outcome.ABSENT) from None
    return in_order(one for one in versions if re.fullmatch(r"[\d.]+", one))


def build_of(package: Package, device: str) -> str:
    """Return the name of the module that has a device.

    Raises:
        StageError: The version has no such module.

    """
    for name in _BUILDS[device]:
        if (package.dist / name).is_file():
            return name
    msg = (
        f"{NAME} {package.version} has no build for {device} "
        f"({', '.join(_BUILDS[device])}); take a newer version."
    )
    raise StageError(msg, outcome=Outcome.LOAD)


def _install(scratch: Path, version: str) -> None:
    made = scratch / "made"
    made.mkdir(PRIVATE)
    # npm fills the nearest folder that has this file. `--prefix` names a folder too,
    # and then npm reads none of the settings that all users of a machine share, such
    # as certificates.
    (made / "package.json").write_text('{"private": true}')
    # A package's own scripts do not run: its files are all that is wanted.
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    # By default npm waits five minutes for a server that is silent, which leaves no
    # time for a second try.
    flags += ["--fetch-timeout", "200000"]
    wanted = f"{NAME}@{version}"
    try:
        _npm(["install", *flags, wanted], f"{wanted} cannot be installed by npm", made)
    except StageError as error:
        there: tuple[str, ...] = ()
        with suppress(StageError):
            there = available()
        if not there or version in there:
            raise
        msg = f"npm has no {NAME} {version}; it has {', '.join(there)}."
        raise StageError(msg, outcome=Outcome.LOAD) from error


def _npm(arguments: list[str], why: str, folder: Path | None = None) -> str:
    npm = shutil.which("npm")
    if npm is None:
        msg = (
            f"npm is not on PATH, and it brings {NAME}; install Node.js, or name a "
            "folder of the package with `package` under [target.*]."
        )
        raise StageError(msg, outcome=Outcome.ABSENT)
    # npm obeys settings of the current folder, which may have been downloaded.
    try:
        done = ended([npm, *arguments, *_QUIET], folder or at_home())
    except OSError as error:
        msg = f"{why}: {npm} does not start ({error.strerror})."
        raise StageError(msg, outcome=Outcome.ABSENT) from None
    if not done.code:
        return done.text
    # Its last words are where its log is.
    lines = [line for line in done.text.splitlines() if "complete log" not in line]
    told = [line for line in lines if "reason: " in line] or lines
    msg = f"{why}: {replace(done, text=told[-1] if told else '').words}"
    raise StageError(msg, outcome=Outcome.ABSENT)


def _read(folder: Path, todo: str) -> Package:
    try:
        told = read_json(folder / "package.json", _Package)
    except (OSError, DamagedError) as error:
        why = getattr(error, "strerror", None) or error
        msg = f"{folder} is no folder of {NAME} ({why}); {todo}."
        raise StageError(msg, outcome=Outcome.ABSENT) from None
    if told.name != NAME or not (folder / "dist").is_dir():
        msg = f"{folder} has the package {told.name!r}, and no {NAME}; {todo}."
        raise StageError(msg, outcome=Outcome.ABSENT)
    return Package(version=told.version[:200], dist=folder / "dist")
