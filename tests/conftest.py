"""Every test: what runs only by name, and Ctrl-C means what it means at a terminal.

A CI may start its tests in the background, where Ctrl-C is ignored; so it would be by
every process that a test starts, and then interrupts.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ONLY_BY_NAME = (
    # Full sizes need 24 GiB of memory; the next two want a quiet machine.
    *("full_size", "bench", "alone"),
    *("slow", "initialised", "fleet", "targets", "providers", "exporters", "plan"),
)

# Tests import onnxruntime here too. It would open a database that all workers share,
# start threads, and post to Microsoft, as `harness.engine.host` says.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# A test of OpenVINO sets this here too; set later, it would keep hosts apart.
os.environ.setdefault("NNCF_CI", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave these out unless ``-m`` names them."""
    unnamed = [name for name in ONLY_BY_NAME if name not in config.option.markexpr]
    left = [item for item in items if any(map(item.get_closest_marker, unnamed))]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
