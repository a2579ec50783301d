"""The embedded Stable Diffusion: each component and a pipeline, against PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

DIGITS = load_suite(Path(__file__).parents[2] / "fixtures" / "digits")


@pytest.mark.parity
@pytest.mark.parametrize("check", DIGITS.checks())
def test_digits_computes_what_pytorch_does(check, parity):
    parity.require(check)
