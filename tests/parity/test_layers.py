"""Every value in between, as watched in the runtime, against PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

DIGITS = load_suite(Path(__file__).parents[2] / "fixtures" / "digits")


@pytest.mark.parity
@pytest.mark.parametrize("check", DIGITS.checks("layers"))
def test_layers_compute_what_pytorch_does(check, parity):
    parity.require(check)
