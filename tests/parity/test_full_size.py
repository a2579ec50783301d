"""Stable Diffusion 1.5 and XL at full size, weights drawn; run when named."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite import load_suite

SD15, SDXL = (
    load_suite(Path(__file__).parents[2] / "fixtures" / name)
    for name in ("sd15", "sdxl_full")
)


@pytest.mark.parity
@pytest.mark.full_size
@pytest.mark.parametrize("check", SD15.checks())
def test_full_size_components_compute_what_pytorch_does(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.full_size
@pytest.mark.parametrize("check", SDXL.checks())
def test_full_size_xl_components_compute_what_pytorch_does(check, parity):
    parity.require(check)
