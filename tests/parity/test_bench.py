"""How long each component takes in each runtime: `pytest -m "parity and bench"`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.benching.items import benches
from harness.suite import load_suite

DIGITS = load_suite(Path(__file__).parents[2] / "fixtures" / "digits")


@pytest.mark.parity
@pytest.mark.bench
@pytest.mark.parametrize("timed", benches(DIGITS))
def test_components_are_timed(timed, parity_bench):
    parity_bench(timed)
