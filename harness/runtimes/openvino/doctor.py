"""What `parity doctor` looks at in OpenVINO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.doctor import (
    FED,
    ONE_OPERATOR,
    Ask,
    Finding,
    Status,
    compared,
    ran,
)


def examine(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Try each device that OpenVINO lists.

    Args:
        ask: Puts a question to a process of its own.
        have: Installed packages and their versions.

    """
    listed = ask(f"{__name__}:devices")
    if listed.ended:
        says = f"import openvino {listed.ended}"
        yield Finding(check="openvino", status=Status.FAIL, says=says)
        return
    for name in listed.facts["devices"]:
        answer = ask(f"{__name__}:device", name)
        check = f"openvino {name}"
        if answer.ended:
            says = f"a model of one operator {answer.ended}"
            yield Finding(check=check, status=Status.FAIL, says=says)
        else:
            yield ran(check, have.get("openvino", ""), answer)


def devices() -> dict[str, Any]:
    """Answer which devices OpenVINO lists."""
    import openvino as ov

    return {"devices": list(ov.Core().available_devices)}


def device(name: str) -> dict[str, Any]:
    """Answer what a model of one operator gives on a device."""
    import numpy as np
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(
        core.read_model(ONE_OPERATOR), name, {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return compared(compiled({"x": np.full(4, FED, np.float32)})[0])
