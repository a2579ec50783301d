"""What tests of several plug-ins share: Chromium, and a run of some records."""

import pytest

from tests.unit.browser import chromium
from tests.unit.found import found_in


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def found(tmp_path):
    def find(*records, **about):
        return found_in(tmp_path, records, **about)

    return find
