"""The settings of the script that shows a divergence with ONNX Runtime alone."""

from __future__ import annotations

from harness.core.case import Device
from harness.runtimes.onnxruntime.providers import options_of, provider_of


def words(device: Device, *, as_deployed: bool) -> dict[str, object]:
    """Return the settings that only ONNX Runtime's script reads.

    `as_deployed` is whether outputs, as deployed, show the divergence; layers come from
    the graph with optimisation off.
    """
    hints = dict(device.hints)
    level = hints.pop("optimization", 99 if as_deployed else 0)
    return {
        "provider": (provider_of(device), options_of(device)),
        "level": level,
        "left_out": list(hints),
    }
