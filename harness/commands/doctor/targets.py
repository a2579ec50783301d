"""Look what the targets of a suite have: each is started, and asked for its runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.commands.doctor.examine import Finding, Status
from harness.core.case import Device
from harness.core.errors import ParityError, StageError
from harness.core.runtime import Runtime, runtime
from harness.runtimes.target.drive import Remote
from harness.suite.suite import load_suite


def check_targets(suite: Path) -> Iterator[Finding]:
    """Yield a finding for each runtime on each target of a suite, if there is one."""
    # The suite's own error says if it is no UTF-8.
    if not suite.is_file() or b"[target." not in suite.read_bytes().replace(b"\0", b""):
        return
    try:
        cases = load_suite(suite).cases
    except ParityError as error:
        yield Finding(check="targets", status=Status.WARN, says=str(error))
        return
    asked = {
        (case.backend, case.device.target.name, case.device.precision): case.device
        for case in cases
        # It would install versions that nobody has run yet.
        if case.device.target is not None and not case.device.target.version
    }
    for (backend, name, precision), device in asked.items():
        yield _finding(runtime(backend), f"{backend} @{name} {precision}", device)


def _finding(declared: Runtime, check: str, device: Device) -> Finding:
    """Start a runtime on a target, and say what it is and whether it falls back."""
    assert device.target is not None  # noqa: S101  # for mypy
    try:
        remote = Remote(declared, device.target, ())
        remote.close()
    except StageError as error:
        return Finding(check=check, status=Status.WARN, says=str(error))
    machine = dict(remote.about)["machine"]
    says = f"{declared.title} {remote.version} on {machine}"
    # What a runtime prints when it is imported may say what the processor has.
    if fallen := declared.fallback(device.precision, remote.log):
        words = f"{says}; not in precision {device.precision}: {fallen}"
        return Finding(check=check, status=Status.WARN, says=words)
    printed = (line.strip(" .>") for line in remote.log.splitlines())
    lines = [line for line in printed if ":" in line]
    says = "; ".join([says, *lines[-1:]])
    return Finding(check=check, status=Status.OK, says=says)
