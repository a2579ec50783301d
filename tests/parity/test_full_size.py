"""Networks at full size, with drawn weights; not part of the short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

FIXTURES = Path(__file__).parents[2] / "fixtures"
SD15 = load_suite(FIXTURES / "sd15")
FAMILIES = [
    pytest.param(*check.values, id=f"{suite.name}/{check.id}")
    for path in sorted((FIXTURES / "full_size").glob("*/parity.toml"))
    for suite in (load_suite(path),)
    for check in suite.checks()
]


@pytest.mark.parity
@pytest.mark.full_size
@pytest.mark.parametrize("check", SD15.checks())
def test_full_size_components_compute_what_pytorch_does(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.full_size
@pytest.mark.parametrize("check", FAMILIES)
def test_full_size_families_compute_what_pytorch_does(check, parity):
    parity.require(check)
