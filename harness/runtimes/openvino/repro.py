"""The settings of the script that shows a divergence with OpenVINO alone."""

from __future__ import annotations

from harness.core.case import Device


def words(device: Device, *, as_deployed: bool) -> dict[str, object]:
    """Return the settings that only OpenVINO's script reads: none."""
    del device, as_deployed
    return {}
