"""What the doctor looks at. Each check yields findings and changes nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.core.doctor import Ask, Finding, Status
from harness.core.environment import core_count, environment, packages
from harness.core.runtime import runtimes

MNN_TELEMETRY = "aliyun-log-python-sdk"
_GIB = 2**30
_FULL_SIZE_BYTES = 12 * _GIB
_SCANT_BYTES = 2 * _GIB


def tested_versions() -> dict[str, str]:
    """Return the version of each package that this release was tested with.

    They are those of ``constraints.txt``, which a wheel carries inside the package.
    """
    here = Path(__file__).parents[2]
    places = (here / "constraints.txt", here.parent / "constraints.txt")
    path = next(place for place in places if place.is_file())
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = (line.partition("#")[0].strip() for line in lines)
    pairs = (pin.partition("==") for pin in pins if pin)
    return {canonical(name): version for name, _, version in pairs}


def check_python() -> Iterator[Finding]:
    """Say what computes here."""
    here = environment()
    yield Finding(
        check="python",
        status=Status.OK,
        says=f"{here.python} on {here.system.partition(' ')[0]} {here.arch}, "
        f"{here.core_count} cores, {here.memory_bytes / _GIB:.0f} GiB",
    )


def check_packages(
    have: Mapping[str, str], tested: Mapping[str, str]
) -> Iterator[Finding]:
    """Look for packages that are missing or of another version than tested."""
    first = [one for one in runtimes().values() if one.is_first]
    # Any one package of several brings a runtime.
    brought = {name for one in runtimes().values() for name in one.distributions}
    missing = [name for name in packages() if name not in {*have, *brought}]
    missing += [
        one.distributions[-1] for one in first if not {*one.distributions} & {*have}
    ]
    others = {
        name: version
        for name, version in have.items()
        if name != MNN_TELEMETRY
        # A local part, as in 2.13.0+cpu, names a build of the same version.
        and version.partition("+")[0] != tested.get(canonical(name), "")
    }
    if missing:
        yield Finding(
            check="packages",
            status=Status.FAIL,
            says=f"not installed: {', '.join(missing)}",
            mend=_pip_install(missing, tested),
        )
    if others:
        told = (
            f"{name} {version} ({tested.get(canonical(name), 'none')})"
            for name, version in others.items()
        )
        yield Finding(
            check="packages",
            status=Status.WARN,
            says=f"not the tested version (in brackets): {', '.join(told)}",
            mend=_pip_install(others, tested),
        )
    if not missing and not others:
        yield Finding(
            check="packages",
            status=Status.OK,
            says=f"{len(have)} that matter, each at its tested version",
        )


def check_onnx(
    ask: Ask, have: Mapping[str, str], tested: Mapping[str, str]
) -> Iterator[Finding]:
    """Import onnx, which MNN's own commands are known to break."""
    answer = ask("onnx")
    mend = _pip_install(["onnx", "protobuf"], tested)
    if MNN_TELEMETRY in have:
        mend = f"pip uninstall -y {MNN_TELEMETRY} && {mend}"
        yield Finding(
            check="onnx",
            status=Status.WARN,
            says=f"{MNN_TELEMETRY} is installed: MNN's own commands (mnnconvert, "
            "mnnquant) fetch it, change protobuf for it, and report each conversion",
            mend=mend,
        )
    if answer.ended:
        says = f"import onnx {answer.ended} (protobuf {have.get('protobuf', 'none')})"
        yield Finding(check="onnx", status=Status.FAIL, says=says, mend=mend)
    else:
        says = f"imports, with protobuf {have.get('protobuf', 'none')}"
        yield Finding(check="onnx", status=Status.OK, says=says)


def check_torch(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Import PyTorch, and hold its threads against the cores."""
    answer = ask("torch")
    if answer.ended:
        yield Finding(
            check="torch", status=Status.FAIL, says=f"import torch {answer.ended}"
        )
        return
    threads, cores = answer.facts["threads"], core_count()
    says = f"{have.get('torch', '')}, {threads} threads on {cores} cores"
    if threads > cores:
        says += ": they will wait for each other and timings will jump"
        mend = f"export OMP_NUM_THREADS={cores}"
        yield Finding(check="torch", status=Status.WARN, says=says, mend=mend)
    else:
        yield Finding(check="torch", status=Status.OK, says=says)


def check_numba(ask: Ask) -> Iterator[Finding]:
    """Compile as the comparison kernel is compiled, and look for the cache."""
    answer = ask("numba")
    if answer.ended or not answer.facts["right"]:
        ended = answer.ended or "computes wrong numbers"
        says = f"nothing can be compared: compiling {ended}"
        yield Finding(check="numba", status=Status.FAIL, says=says)
    elif not answer.facts["cached"]:
        yield Finding(
            check="numba",
            status=Status.WARN,
            says="compiles, and cannot keep the result: each process compiles anew",
            mend="export NUMBA_CACHE_DIR=a-folder-you-can-write",
        )
    else:
        yield Finding(check="numba", status=Status.OK, says="compiles, and caches")


def check_store(store: Path) -> Iterator[Finding]:
    """Look for room where artifacts are kept."""
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    says = f"{free / _GIB:.0f} GiB free at {store}"
    mend = "export PARITY_STORE=a-folder-on-another-disk"
    if not os.access(place, os.W_OK):
        says = f"{place} cannot be written"
        yield Finding(check="store", status=Status.FAIL, says=says, mend=mend)
    elif free < _SCANT_BYTES:
        yield Finding(check="store", status=Status.WARN, says=says, mend=mend)
    elif free < _FULL_SIZE_BYTES:
        says += "; models of full size need 12"
        yield Finding(check="store", status=Status.OK, says=says)
    else:
        yield Finding(check="store", status=Status.OK, says=says)


def canonical(name: str) -> str:
    """Spell a package as indexes do: lower case, single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip_install(names: Iterable[str], tested: Mapping[str, str]) -> str:
    pins = {name: tested.get(canonical(name)) for name in names}
    wanted = (f"{name}=={pin}" if pin else name for name, pin in pins.items())
    return f"pip install {' '.join(wanted)}"
