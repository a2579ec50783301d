"""Stable Diffusion 1.5 at full size, with drawn weights; not part of the short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite import load_suite

SD15 = load_suite(Path(__file__).parents[2] / "fixtures" / "sd15")


@pytest.mark.parity
@pytest.mark.full_size
@pytest.mark.parametrize("check", SD15.checks())
def test_full_size_components_compute_what_pytorch_does(check, parity):
    parity.require(check)
