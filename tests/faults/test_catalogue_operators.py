"""Operators that compute something else: caught, and the score does not fall."""

import pytest

from tests.faults.trials import of_families

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("fault", "backend"), of_families("operator"))
def test_a_planted_fault_is_caught_and_scores_no_worse_than_before(
    holds, fault, backend
):
    holds(fault, backend)
