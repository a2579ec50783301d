"""How long each component and pipeline takes: `pytest -m "parity and bench"`."""

import pytest

from harness.plugins.bench.pytest_items import benches
from harness.suite.suite import load_suite
from tests.places import FIXTURES

DIGITS = load_suite(FIXTURES / "digits")

# The other pipelines differ in their schedulers or draw a hundred pictures.
TIMED = (*(part.name for part in DIGITS.components), "text2img", "img2img", "canny")


@pytest.mark.parity
@pytest.mark.bench
@pytest.mark.parametrize("timed", benches(DIGITS, *TIMED))
def test_components_and_pipelines_are_timed(timed, parity_bench):
    parity_bench(timed)
