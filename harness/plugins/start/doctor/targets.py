"""Look what the targets of a suite have: a tiny model runs on each, as a case would.

So a device that is refused, a provider that is not there and a precision that is not
used are seen. A version has a target of its own, which is tried where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.core.case import Device
from harness.core.errors import ParityError
from harness.core.runtime import Runtime, runtime
from harness.core.toml_file import TomlFile
from harness.engine.environments import installed_versions
from harness.plugins.start.doctor.child import Answer, ask_child
from harness.plugins.start.doctor.examine import Ask, Diagnosis, Status
from harness.suite.suite import load_suite

LIMIT_S = 180.0
"""Time limit of one target, in seconds; an emulator starts slowly."""


def check_targets(suite: Path, ask: Ask = ask_child) -> Iterator[Diagnosis]:
    """Yield a finding for each runtime on each target of a suite, if there is one."""
    if not suite.is_file():
        return
    try:
        if not _has_places(TomlFile.load(suite).data):
            return
        cases = load_suite(suite).cases
    except ParityError as error:
        yield Diagnosis(check="targets", status=Status.WARN, says=str(error))
        return
    asked = {
        (case.backend, case.device.target.name, case.device.precision): case.device
        for case in cases
        if case.device.target is not None
    }
    for (backend, name, precision), device in asked.items():
        declared, check = runtime(backend), f"{backend} @{name}"
        check += f" {precision}" if declared.precisions else ""
        if not _starts(declared, device):
            says = "is not installed yet; the first run in it does that"
            yield Diagnosis(check=check, status=Status.ABSENT, says=says)
            continue
        told = msgspec.json.encode(device).decode()
        answer = ask("run_on", backend, told, timeout_s=LIMIT_S)
        yield _finding(declared, check, device, answer)


def _has_places(data: Mapping[str, Any]) -> bool:
    """Whether a suite has targets or versions, before it is read in full."""
    backends = data.get("backend")
    tables = backends.values() if isinstance(backends, dict) else ()
    versions = any(isinstance(table, dict) and "versions" in table for table in tables)
    return "target" in data or versions


def _starts(declared: Runtime, device: Device) -> bool:
    """Whether a device's target starts without an installation."""
    target = device.target
    if target is None or target.kind or not target.version:
        return True
    return target.version in installed_versions(declared)


def _finding(
    declared: Runtime, check: str, device: Device, answer: Answer
) -> Diagnosis:
    """Return what a target is, or what is wrong with it."""
    facts, status = answer.facts, Status.WARN
    if answer.ended:
        says = f"a model of one operator {answer.ended}"
        return Diagnosis(check=check, status=status, says=says)
    if refused := facts.get("refused"):
        return Diagnosis(check=check, status=status, says=refused)
    says = f"{declared.title} {facts['version']} on {facts['detail']['machine']}"
    product = f"2 × {facts['fed']} came out as {facts['value']}"
    if fallen := declared.fallback(device.precision, answer.log):
        says += f"; not in precision {device.precision}: {fallen}"
    elif device.precision == declared.half and facts["right"]:
        # Some systems keep a runtime's words from its standard error.
        says += f"; not in precision {device.precision}: {product}, without a rounding"
    elif device.precision == declared.precision and not facts["right"]:
        says += f"; {product}"
    else:
        status = Status.OK
        said = declared.features and re.search(declared.features, answer.log)
        is_usual = device.device == declared.devices[0]
        provider = "" if is_usual else facts["detail"].get("provider", "")
        features = said.group().strip(" .") if said else ""
        says = "; ".join(filter(None, (says, provider, features)))
    return Diagnosis(check=check, status=status, says=says)
