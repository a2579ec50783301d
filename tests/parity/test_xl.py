"""Stable Diffusion XL in small: its components, and the pictures they draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite import load_suite

XL = load_suite(Path(__file__).parents[2] / "fixtures" / "sdxl")


@pytest.mark.parity
@pytest.mark.parametrize("check", XL.checks())
def test_stable_diffusion_xl_computes_what_pytorch_does(check, parity):
    parity.require(check)
