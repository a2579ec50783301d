"""What shows a divergence in a browser without the harness."""

from __future__ import annotations

import json
from pathlib import Path

from harness.core.case import Device
from harness.plugins.browser.chromium import browser_at
from harness.plugins.browser.package import NAME, package_of
from harness.suite.places import ReproScript

_SCRIPT = Path(__file__).with_name("repro.txt")


def script_of(device: Device) -> ReproScript:
    """Return the script of a repro in a browser, as `TargetKind` says.

    Raises:
        StageError: There is no browser or no onnxruntime-web.

    """
    target = device.target
    assert target is not None  # noqa: S101  # the kind of a target asks for this
    settings = dict(target.settings)
    package = package_of(settings.get("package", ""), target.version)
    pinned = {"private": True, "dependencies": {NAME: package.version}}
    return ReproScript(
        text=_SCRIPT.read_text(encoding="utf-8"),
        files={"package.json": f"{json.dumps(pinned, indent=1)}\n"},
        values={"adapter": settings.get("adapter", "")},
        arguments=(browser_at(settings.get("browser", "")), str(package.dist.parent)),
        command="npm install && python repro.py",
        needs=f"numpy, a browser that is made of Chromium, and {NAME}",
    )
