"""What several tests of reports share: a run of some records."""

import pytest

from tests.unit.found import found_in


@pytest.fixture
def found(tmp_path):
    def find(*records, **about):
        return found_in(tmp_path, records, **about)

    return find
