"""Whole pipelines: latents at every step, and the pictures, against PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

DIGITS = load_suite(Path(__file__).parents[2] / "fixtures" / "digits")
SD3 = load_suite(Path(__file__).parents[2] / "fixtures" / "sd3")


@pytest.mark.parity
@pytest.mark.parametrize("check", DIGITS.checks("latents", "image"))
def test_pipelines_draw_what_pytorch_draws(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.parametrize("check", SD3.checks("latents", "image"))
def test_flow_matching_draws_what_pytorch_draws(check, parity):
    parity.require(check)
