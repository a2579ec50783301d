"""Networks of other families, small and with drawn weights, against PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite import load_suite

FIXTURES = Path(__file__).parents[2] / "fixtures"
FAMILIES = ("sd3", "flux", "pixart", "dit")
SUITES = [load_suite(FIXTURES / name) for name in FAMILIES]
CHECKS = [
    pytest.param(*check.values, id=f"{suite.name}/{check.id}")
    for suite in SUITES
    for check in suite.checks()
]


@pytest.mark.parity
@pytest.mark.parametrize("check", CHECKS)
def test_every_family_computes_what_pytorch_does(check, parity):
    parity.require(check)
