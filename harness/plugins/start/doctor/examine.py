"""Check everything that a parity run needs, and report the findings.

A runtime's own list of devices is not relied on. Each declared device is tried: a model
of one operator is converted and run in a child process with a time limit, and the
result is compared with the right one. A crash of the child process is a finding.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from harness.core.case import Device
from harness.core.environment import core_count, environment, installed, packages
from harness.core.runtime import Runtime, runtimes
from harness.core.text import Line, wrapped
from harness.core.waiting import awaited
from harness.plugins.start.doctor.child import COMPILE_S, LIMIT_S, Answer, ask_child

MNN_TELEMETRY = "aliyun-log-python-sdk"
_GIB = 2**30
_FULL_SIZE_BYTES = 12 * _GIB
_SCANT_BYTES = 2 * _GIB

Ask = Callable[..., Answer]
"""A function that calls another one in a child process, which may crash."""


class Status(StrEnum):
    """The meaning of a finding for a user who wants to measure parity."""

    OK = "✓"
    WARN = "!"
    """It works, but can mislead."""
    FAIL = "✗"
    """Parity cannot be measured until this is fixed."""
    ABSENT = "·"
    """It is not installed, and is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The result of one check.

    Attributes:
        says: The observation, with the runtime's own message if there is one.
        fix: The fix, a command where possible; empty if there is nothing to fix.

    """

    check: str
    status: Status
    says: str
    fix: str = ""


def examine(*, store: Path, ask: Ask = ask_child) -> list[Diagnosis]:
    """Run all checks, several at a time, and return the findings in reading order.

    The folder of the store may not exist yet.
    """
    have = installed((*packages(), MNN_TELEMETRY))
    tested = tested_versions()
    # A runtime of an extra is checked only if it is installed.
    declared = [
        runtime
        for runtime in runtimes().values()
        if runtime.is_first or runtime.is_installed
    ]
    looks = [
        check_machine(store),
        check_packages(have, tested),
        check_loads(ask, have, tested),
        *(check_runtime(ask, one, have) for one in declared),
    ]
    with ThreadPoolExecutor(max_workers=core_count()) as pool:
        found = [pool.submit(list[Diagnosis], look) for look in looks]
        try:
            return [*chain.from_iterable(map(awaited, found))]
        finally:
            pool.shutdown(cancel_futures=True)


def exit_code(findings: Iterable[Diagnosis]) -> int:
    """Return 0 if parity can be measured here, and 2 if it cannot."""
    return 2 if any(each.status is Status.FAIL for each in findings) else 0


def render(findings: Iterable[Diagnosis], *, has_suite: bool) -> Iterator[Line]:
    """Yield the findings, absent optional parts last, then a verdict.

    Where there is no suite to run, the next step writes one.
    """
    findings = sorted(findings, key=lambda each: each.status is Status.ABSENT)
    yield from finding_lines(findings)
    if broken := sum(each.status is Status.FAIL for each in findings):
        yield Line(text=f"Not ready: fix what has a ✗ first ({broken} in all).")
        yield Line(text="next   parity doctor")
        return
    here = [
        each.check
        for each in findings
        if each.status is Status.OK and each.check.split(" ")[0] in runtimes()
    ]
    yield Line(text=f"Ready: parity can be measured on {', '.join(here)}.")
    command = "pytest -m parity" if has_suite else "parity init path/to/checkpoint"
    yield Line(text=f"next   {command}")


def finding_lines(findings: Sequence[Diagnosis]) -> Iterator[Line]:
    """Yield the findings and an empty line."""
    label = max((len(each.check) for each in findings), default=0)
    for each in findings:
        lead = f" {each.status} {each.check:<{label}}  "
        yield from wrapped(each.says, indent=lead)
        if each.fix:
            # The line is not wrapped, so that the command can be copied.
            yield Line(text=f"→ {each.fix}", lead=" " * len(lead))
    yield Line(text="")


def tested_versions() -> dict[str, str]:
    """Return the version of each package that this release was tested with.

    The versions are those of ``constraints.txt``, which a wheel has inside the package.
    """
    here = Path(__file__).parents[3]
    places = (here / "constraints.txt", here.parent / "constraints.txt")
    path = next(place for place in places if place.is_file())
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = (line.partition("#")[0].strip() for line in lines)
    pairs = (pin.partition("==") for pin in pins if pin)
    return {canonicalize_name(name): version for name, _, version in pairs}


def check_machine(store: Path) -> Iterator[Diagnosis]:
    """Report the processors, and check the free space where artifacts are kept."""
    here = environment()
    yield Diagnosis(
        check="python",
        status=Status.OK,
        says=f"{here.python} on {here.system.partition(' ')[0]} {here.arch}, "
        f"{here.core_count} cores, {here.memory_bytes / _GIB:.0f} GiB",
    )
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    says = f"{free / _GIB:.0f} GiB free at {store}"
    says += "; models of full size need 12" if free < _FULL_SIZE_BYTES else ""
    status = Status.WARN if free < _SCANT_BYTES else Status.OK
    if not os.access(place, os.W_OK):
        says, status = f"{place} cannot be written", Status.FAIL
    fix = "" if status is Status.OK else "export PARITY_STORE=a-folder-on-another-disk"
    yield Diagnosis(check="store", status=status, says=says, fix=fix)


def check_packages(
    have: Mapping[str, str], tested: Mapping[str, str]
) -> Iterator[Diagnosis]:
    """Report packages that are missing or of another version than tested."""
    # A runtime may have several packages, and any one of them installs it.
    brought = {name for one in runtimes().values() for name in one.distributions}
    missing = [name for name in packages() if name not in {*have, *brought}]
    missing += [
        runtime.distributions[-1]
        for runtime in runtimes().values()
        if runtime.is_first and not {*runtime.distributions} & {*have}
    ]
    others = {
        name: version
        for name, version in have.items()
        if name != MNN_TELEMETRY
        # A local part, as in 2.13.0+cpu, names a build of the same version.
        and version.partition("+")[0] != tested.get(canonicalize_name(name), "")
    }
    listed = ", ".join(
        f"{name} {version} ({tested.get(canonicalize_name(name), 'none')})"
        for name, version in others.items()
    )
    for status, names, says in (
        (Status.FAIL, missing, f"not installed: {', '.join(missing)}"),
        (Status.WARN, others, f"not the tested version (in brackets): {listed}"),
    ):
        if names:
            fix = _pip_install(names, tested)
            yield Diagnosis(check="packages", status=status, says=says, fix=fix)
    if not missing and not others:
        says = f"{len(have)} that matter, each at its tested version"
        yield Diagnosis(check="packages", status=Status.OK, says=says)


def check_loads(
    ask: Ask, have: Mapping[str, str], tested: Mapping[str, str]
) -> Iterator[Diagnosis]:
    """Import what every run needs, and compile the comparison as a first run does."""
    onnx = _pip_install(["onnx", "protobuf"], tested)
    if MNN_TELEMETRY in have:
        onnx = f"pip uninstall -y {MNN_TELEMETRY} && {onnx}"
        says = (
            f"{MNN_TELEMETRY} is installed: MNN's own commands (mnnconvert, mnnquant) "
            "fetch it, change protobuf for it, and report each conversion"
        )
        yield Diagnosis(check="onnx", status=Status.WARN, says=says, fix=onnx)
    for name, limit_s, fix in (
        ("onnx", LIMIT_S, onnx),
        ("torch", LIMIT_S, _pip_install(["torch"], tested)),
        ("numba", COMPILE_S, "export NUMBA_CACHE_DIR=a-folder-you-can-write"),
    ):
        ended = ask("load", name, timeout_s=limit_s).ended
        says = f"{have.get(name, '')} {ended or 'loads'}".strip()
        if name == "onnx":
            says += f", with protobuf {have.get('protobuf', 'none')}"
        status = Status.FAIL if ended else Status.OK
        yield Diagnosis(check=name, status=status, says=says, fix=fix if ended else "")


def check_runtime(
    ask: Ask, runtime: Runtime, have: Mapping[str, str]
) -> Iterator[Diagnosis]:
    """Try a runtime on each of its devices; the first must work."""
    both = [name for name in runtime.distributions if name in have]
    if len(both) > 1:
        yield Diagnosis(
            check=runtime.name,
            status=Status.FAIL,
            says=f"{' and '.join(both)} are installed and share one folder: which one "
            "runs is left to chance",
            fix=f"pip uninstall -y {' '.join(both)} && "
            f"pip install {both[0]}=={have[both[0]]}",
        )
    for device in runtime.devices:
        needed = device == runtime.devices[0]
        told = Device(device=device, threads=1, precision=runtime.precision)
        answer = ask("run_on", runtime.name, msgspec.json.encode(told).decode())
        facts, fix = answer.facts, ""
        if answer.ended:
            status = Status.WARN
            says = f"a model of one operator {answer.ended}"
        elif refused := facts.get("refused"):
            fix = "" if needed else _remedy(ask, runtime, device)
            status = Status.WARN if fix else Status.ABSENT
            # A part that is only absent needs no fix, so its message is shortened.
            short = refused.partition(". ")[0].rstrip(".")
            says = refused if fix or needed else short
        elif facts["right"]:
            status = Status.OK
            says = f"{facts['version']} runs"
        else:
            status = Status.FAIL
            says = f"runs, and 2 × {facts['fed']} came out as {facts['value']}"
        if needed and status is not Status.OK:
            status = Status.FAIL
        yield Diagnosis(
            check=f"{runtime.name} {device}", status=status, says=says, fix=fix
        )


def _remedy(ask: Ask, runtime: Runtime, device: str) -> str:
    """Return the fix for a device, as the runtime's package gives it."""
    module = f"{runtime.package}.doctor"
    if find_spec(module) is None:
        return ""
    return str(ask(f"{module}:remedy", device).facts.get("remedy", ""))


def _pip_install(names: Iterable[str], tested: Mapping[str, str]) -> str:
    pins = {name: tested.get(canonicalize_name(name)) for name in names}
    wanted = (f"{name}=={pin}" if pin else name for name, pin in pins.items())
    return f"pip install {' '.join(wanted)}"
