"""The engine's names of worker functions."""

import pytest

from harness.core.runtime import resolve, runtimes
from harness.engine import tasks

NAMES = {
    name
    for name in vars(tasks).values()
    if isinstance(name, str) and name.startswith("harness.") and ":" in name
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_leads_to_a_function(name):
    assert callable(resolve(name))


@pytest.mark.parametrize("host", ["torch", *runtimes()])
def test_what_a_host_imports_first_is_there(host):
    for module in tasks.preload(host):
        __import__(module)
