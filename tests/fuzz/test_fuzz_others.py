"""The other half of the formats, fuzzed."""

import pytest

from tests.fuzz.formats import NAMES
from tests.fuzz.fuzzed import check


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("name", NAMES[1::2])
def test_no_file_makes_a_reader_fail_run_or_write(name, healthy, tmp_path):
    check(name, healthy, tmp_path)
