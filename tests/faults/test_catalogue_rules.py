"""Rules of our own, broken on purpose: a test fails that is named after it."""

from __future__ import annotations

import pytest

from tests.faults.trials import of_families


@pytest.mark.parametrize(("fault", "backend"), of_families("metric"))
def test_a_broken_rule_fails_a_test_that_is_named_after_it(holds, fault, backend):
    holds(fault, backend)
