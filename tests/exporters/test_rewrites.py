"""Rewritten files: no false alarm, and every planted fault is caught.

`tox -e exporters` has the tools; `python -m tests.exporters.rewrites` prints each run.
"""

import os

import pytest

from tests.exporters.rewrites import Rewrites, table, try_all

FILES = 60

pytestmark = pytest.mark.exporters


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """Every clean file and every fault in both runtimes."""
    store = tmp_path_factory.mktemp("rewrites") / "store"
    with Rewrites(store, os.environ["PARITY_REWRITES"]) as rewrites:
        found = list(try_all(rewrites))
    print(table(found))
    return found


def test_a_rewritten_file_that_converts_raises_no_alarm(tried):
    clean = [one for one in tried if not one.fault]
    assert len({(one.network, one.rewrite) for one in clean}) >= FILES
    alarms = [one for one in clean if one.failed and one.converts]
    assert not alarms, "\n".join(f"{one.network} {one.rewrite}" for one in alarms)


def test_every_fault_planted_in_a_rewritten_file_is_caught(tried):
    planted = [one for one in tried if one.fault]
    missed = [one for one in planted if not one.failed]
    assert planted
    assert not missed, "\n".join(f"{one.fault} {one.rewrite}" for one in missed)
