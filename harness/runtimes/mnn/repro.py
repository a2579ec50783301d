"""The settings of the script that shows a divergence with MNN alone."""

from __future__ import annotations

from harness.core.case import Device
from harness.runtimes.mnn import HINTS


def words(device: Device, *, as_deployed: bool) -> dict[str, object]:
    """Return the settings that only MNN's script reads; one file serves both."""
    del as_deployed
    hints = [(HINTS.index(name), value, name) for name, value in device.hints]
    return {"hints": hints}
