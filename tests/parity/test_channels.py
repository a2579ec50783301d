"""Networks of other channel counts, and one with a merged LoRA."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite import load_suite

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHANNELS = load_suite(FIXTURES / "channels")
LORA = load_suite(FIXTURES / "lora")


@pytest.mark.parity
@pytest.mark.parametrize("check", CHANNELS.checks())
def test_other_channel_counts_compute_what_pytorch_does(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.parametrize("check", LORA.checks())
def test_a_merged_lora_computes_what_pytorch_does(check, parity):
    parity.require(check)
