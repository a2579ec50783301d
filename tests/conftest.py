"""Every test: what runs only by name, a store, and Ctrl-C as it is at a terminal.

A CI may start its tests in the background, where Ctrl-C is ignored; so it would be by
every process that a test starts, and then interrupts.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from harness.core.store_root import local_root

# How long an example takes says how loaded the machine is.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

ONLY_BY_NAME = (
    # Full sizes need 24 GiB of memory; the next two want a quiet machine.
    *("full_size", "bench", "alone"),
    *("slow", "initialised", "fleet", "targets", "providers", "exporters", "plan"),
    "browser",
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


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that all tests share; it begins with what this machine's own store has.

    Exports take long, and `tox -e parity` has made most of digits' already. The files
    are links, so nothing that tests do changes the machine's own. Where there is no
    such store, or no link can be made, the first test that needs an entry makes it.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    store = base / "parity-store"
    entries = shutil.ignore_patterns("locks", "making", "shared", "versions")
    with FileLock(f"{store}.lock"):  # the workers of xdist share it
        if not store.exists():
            try:
                shutil.copytree(
                    local_root(), store, ignore=entries, copy_function=os.link
                )
            except (OSError, shutil.Error):
                shutil.rmtree(store, ignore_errors=True)
                store.mkdir()
    return store
