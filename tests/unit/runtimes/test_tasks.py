"""The engine's names of worker functions."""

import subprocess
import sys

import pytest

from harness.core.runtime import resolve, runtimes
from harness.engine import tasks
from harness.engine.preload import preload
from harness.engine.stage import Stage

STAGES = [value for value in vars(tasks).values() if isinstance(value, Stage)]
NAMES = {
    name
    for name in (*vars(tasks).values(), *(stage.task for stage in STAGES))
    if isinstance(name, str) and name.startswith("harness.") and ":" in name
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_leads_to_a_function(name):
    assert callable(resolve(name))


@pytest.mark.parametrize("host", ["torch", *runtimes()])
def test_what_a_host_imports_first_is_there(host):
    for module in preload(host):
        __import__(module)


def test_pytorchs_host_needs_no_opencv():
    """Where a library of the system is missing, OpenCV does not load."""
    modules = ", ".join(preload("torch"))
    script = f"import sys; sys.modules['cv2'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", script], check=True)
