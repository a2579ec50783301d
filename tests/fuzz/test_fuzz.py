"""Each format that is read, fuzzed; `tox -e fuzz` prints a table of the same.

``PARITY_FUZZ_S`` says for how many seconds each format is fuzzed, and
``PARITY_FUZZ_SEED`` with which seed. A finding becomes a case of `test_findings`.
"""

import os
import secrets

import pytest
from filelock import FileLock

from tests.fuzz.formats import NAMES
from tests.fuzz.healthy import make
from tests.fuzz.loop import fuzz

SECONDS = float(os.environ.get("PARITY_FUZZ_S") or 60)
SEED = int(os.environ.get("PARITY_FUZZ_SEED") or secrets.randbelow(10**6))


@pytest.fixture(scope="session")
def healthy(shared_store, tmp_path_factory):
    """The healthy files; the workers of xdist share them."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home = base / "healthy"
    with pytest.MonkeyPatch.context() as patch, FileLock(f"{home}.lock"):
        patch.setenv("PARITY_STORE", str(shared_store))
        return make(home).home


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_file_makes_a_reader_fail_run_or_write(name, healthy, tmp_path):
    result = fuzz(name, healthy, SECONDS, SEED, tmp_path)

    print(f"{name}: {result.calls:,} calls, {result.sound:,} answered, seed {SEED}")
    told = [f"{one.kind}: {one.where}\n{one.words}" for one in result.findings]
    assert told == [], f"seed {SEED}"
    assert result.calls
