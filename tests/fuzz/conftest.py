"""The healthy files, made once for all tests of fuzzers and their findings."""

import os

import pytest
from filelock import FileLock

from tests.fuzz.healthy import make


@pytest.fixture(scope="session")
def healthy(shared_store, tmp_path_factory):
    """The folder of the healthy files; the workers of xdist share it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home = base / "healthy"
    with pytest.MonkeyPatch.context() as patch, FileLock(f"{home}.lock"):
        patch.setenv("PARITY_STORE", str(shared_store))
        return make(home).home
