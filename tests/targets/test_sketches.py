"""What traces of statistics localise, over the catalogue's operator faults."""

import pytest

from tests.faults import sketches
from tests.faults.trials import of_families

pytestmark = pytest.mark.targets

SHARE = 0.9


def test_sketches_blame_the_operator_that_whole_values_blame(tmp_path):
    faults = [one.values for one in of_families("operator")]
    found = [
        (name, whole, brief)
        for name, _, whole, brief in sketches.scored(tmp_path, faults)
        if whole is not None or brief is not None
    ]
    other = [one for one in found if one[1] != one[2]]
    assert len(found) > len(faults) / 2, "too few faults show in layers"
    assert len(other) <= (1 - SHARE) * len(found), other
