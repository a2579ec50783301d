"""The values for the script that shows a divergence with OpenVINO alone."""

from __future__ import annotations

from harness.core.case import Device


def words(device: Device, *, as_deployed: bool) -> dict[str, object]:
    """Return the values in ``repro.txt`` that only OpenVINO has: none."""
    del device, as_deployed
    return {}
