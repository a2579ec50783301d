"""The environment of a result: machine, versions, commit. It is only read.

No framework is imported: each version is read from the package's metadata.
`parity doctor` is the command that imports and tries frameworks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from harness.core.memory import GIB
from harness.core.program import ended
from harness.core.runtime import Runtime, runtimes

_TOOLS = (
    *("torch", "onnx", "onnxscript", "diffusers", "transformers", "numpy", "numba"),
    *("safetensors", "protobuf", "pytest"),
)


def packages() -> tuple[str, ...]:
    """Return the packages that can change a number or a timing."""
    ours = (name for one in runtimes().values() for name in one.distributions)
    return (*_TOOLS, *ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and the software that made a report's rows.

    Attributes:
        python: Version of the interpreter, ``3.11.2``.
        system: Operating system and its release.
        arch: Instruction set, ``x86_64``.
        cpu: Model name of the processor.
        core_count: Number of cores that this process may use.
        memory_bytes: Physical memory.
        gpus: Names of the NVIDIA GPUs that the driver shows.
        host: Digest that distinguishes this machine from others of the same model. It
            is made from its machine id and host name, and neither can be read back.
            Empty if it is not known.
        packages: Version of each of `packages` that is installed.
        commit: Git commit of the working directory; empty if it is not known.
        dirty: Whether tracked files differ from `commit`.

    """

    python: str
    system: str
    arch: str
    cpu: str
    core_count: int
    memory_bytes: int
    gpus: tuple[str, ...]
    host: str
    packages: Mapping[str, str]
    commit: str
    dirty: bool

    @property
    def id(self) -> str:
        """Eight hex digits that two timings must share to be compared.

        The machine and the minor version of Python count. Package versions and the
        commit do not count, because a diff must show a timing that changes with them.
        """
        # A virtual machine's memory changes by a few MiB at each boot.
        memory_gib = round(self.memory_bytes / GIB)
        machine = (
            self.system.partition(" ")[0],
            self.arch,
            self.cpu,
            str(self.core_count),
            str(memory_gib),
            *self.gpus,
            self.host,
            ".".join(self.python.split(".")[:2]),
        )
        return hashlib.sha256("\n".join(machine).encode()).hexdigest()[:8]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file, including `id`."""
        return {**asdict(self), "gpus": list(self.gpus), "id": self.id}


@cache
def environment() -> Environment:
    """Describe this machine and this working directory, once in a process."""
    commit, dirty = _git_state(Path.cwd())
    return Environment(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu=_cpu(),
        core_count=core_count(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=_gpus(),
        host=_host(),
        packages=installed(packages()),
        commit=commit,
        dirty=dirty,
    )


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the version of each of these packages that is installed.

    A process reads each version once, so it keeps the versions of what it imported.
    """
    return {name: found for name in names if (found := _version(name))}


@cache
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def version_of(declared: Runtime) -> str:
    """Return the version of a runtime that is installed here; empty for none."""
    return next(iter(installed(declared.distributions).values()), "")


def core_count() -> int:
    """Return the number of cores this process may use; a container may limit it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _host() -> str:
    named = platform.node()
    with contextlib.suppress(OSError):  # only Linux has it, not each container
        named += Path("/etc/machine-id").read_text(encoding="ascii").strip()
    return hashlib.sha256(named.encode()).hexdigest()[:8] if named else ""


def _cpu() -> str:
    if platform.system() == "Darwin":
        return printed("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name") or facts.get("Model") or facts.get("Hardware")
    if not name:
        return platform.processor() or platform.machine()
    if "cpu family" in facts:
        # Virtual machines often give the same name to different processors.
        name += f" (family {facts['cpu family']}, model {facts.get('model', '?')})"
    return name


def _gpus() -> tuple[str, ...]:
    names = []
    # These are the driver's own files: no library is loaded, no context is created.
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition(":")
                if key == "Model":
                    names.append(value.strip())
    return tuple(names)


def _git_state(folder: Path) -> tuple[str, bool]:
    commit = printed("git", "-C", str(folder), "rev-parse", "--verify", "-q", "HEAD")
    if not commit:
        return "", False
    # The folder may have been downloaded, with settings that name programs to run.
    filters = printed(
        *("git", "-C", str(folder), "config", "--show-scope"),
        *("--get-regexp", r"^filter\..*\.(clean|process)$"),
    )
    if any(line.startswith(("local", "worktree")) for line in filters.splitlines()):
        return commit, True  # only with them git could say more
    changes = printed(
        *("git", "--no-optional-locks", "-C", str(folder)),
        *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
        # Untracked files do not count, as in `git describe --dirty`.
        *("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"),
    )
    return commit, bool(changes)


def printed(*command: str) -> str:
    """Return what a command prints, or nothing if it is missing or fails."""
    try:
        done = ended(command, limit_s=10, stderr=False)
    except OSError:
        return ""
    return "" if done.code else done.text
