"""Every other family, small, and every other pipeline of digits, against PyTorch."""

import pytest

from harness.suite.suite import load_suite
from tests.parity import test_digits
from tests.places import FIXTURES

LARGE = {"sd15", "full_size"}
"""These take hours, and are in the file next door."""

SUITES = [
    load_suite(path)
    for path in sorted(FIXTURES.rglob("parity.toml"))
    if not LARGE & set(path.relative_to(FIXTURES).parts)
]
SMOKE = {"bert", "dit", "exported", "minilm", "mnn_scripts", "roberta", "sd3"}
"""Suites that a push runs: both exporters, files of others, trained weights."""

ELSEWHERE = {check.id for check in test_digits.CHECKS}
"""What the file next door runs of digits."""

CHECKS = [
    pytest.param(
        *check.values,
        id=f"{suite.name}/{check.id}",
        marks=pytest.mark.smoke if suite.name in SMOKE else (),
    )
    for suite in SUITES
    for check in suite.checks()
    if suite.name != "digits" or check.id not in ELSEWHERE
]


@pytest.mark.parity
@pytest.mark.parametrize("check", CHECKS)
def test_every_family_computes_what_pytorch_does(check, parity):
    parity.require(check)
