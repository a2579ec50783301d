"""Every other family, small: its components, tasks and pictures, against PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

FIXTURES = Path(__file__).parents[2] / "fixtures"
LARGE = {"sd15", "full_size"}
"""Beside `digits`, which the file next door tests: these take hours."""

SUITES = [
    load_suite(path)
    for path in sorted(FIXTURES.rglob("parity.toml"))
    if not {"digits", *LARGE} & set(path.relative_to(FIXTURES).parts)
]
CHECKS = [
    pytest.param(*check.values, id=f"{suite.name}/{check.id}")
    for suite in SUITES
    for check in suite.checks()
]


@pytest.mark.parity
@pytest.mark.parametrize("check", CHECKS)
def test_every_family_computes_what_pytorch_does(check, parity):
    parity.require(check)
