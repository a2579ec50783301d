"""What each component returns, as deployed and unwatched, against PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

DIGITS = load_suite(Path(__file__).parents[2] / "fixtures" / "digits")


@pytest.mark.parity
@pytest.mark.parametrize("check", DIGITS.checks("outputs"))
def test_outputs_are_what_pytorch_returns(check, parity):
    parity.require(check)
