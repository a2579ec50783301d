"""Networks at full size, with drawn weights; not part of the short run."""

import pytest

from harness.suite.suite import load_suite
from tests.places import FIXTURES

SUITES = [FIXTURES / "sd15", *sorted((FIXTURES / "full_size").glob("*/parity.toml"))]
CHECKS = [
    pytest.param(*check.values, id=f"{suite.name}/{check.id}")
    for suite in map(load_suite, SUITES)
    for check in suite.checks()
]


@pytest.mark.parity
@pytest.mark.full_size
@pytest.mark.parametrize("check", CHECKS)
def test_a_network_of_full_size_computes_what_pytorch_does(check, parity):
    parity.require(check)
