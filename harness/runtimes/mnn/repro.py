"""The values for the script that shows a divergence with MNN alone."""

from __future__ import annotations

from harness.core.case import Device
from harness.runtimes.mnn import HINTS


def words(device: Device, *, as_deployed: bool) -> dict[str, object]:
    """Return the values in ``repro.txt`` that only MNN has; one file serves both."""
    del as_deployed
    hints = [
        f"\nnet.setSessionHint({HINTS.index(name)}, {value})  # {name}"
        for name, value in device.hints
    ]
    return {"hints": "".join(hints)}
