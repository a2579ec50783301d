"""Text encoders: every task, one artifact for many shapes, and what embeddings tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite import load_suite

FIXTURES = Path(__file__).parents[2] / "fixtures"
MINILM = load_suite(FIXTURES / "minilm")
TASKS = FIXTURES / "text_tasks"
BERT, ROBERTA, DISTILBERT = (
    load_suite(TASKS / name) for name in ("bert", "roberta", "distilbert")
)


@pytest.mark.parity
@pytest.mark.parametrize("check", MINILM.checks())
def test_a_trained_encoder_and_what_is_read_from_it(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.parametrize("check", BERT.checks())
def test_bert_computes_what_pytorch_does(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.parametrize("check", ROBERTA.checks())
def test_roberta_computes_what_pytorch_does(check, parity):
    parity.require(check)


@pytest.mark.parity
@pytest.mark.parametrize("check", DISTILBERT.checks())
def test_distilbert_computes_what_pytorch_does(check, parity):
    parity.require(check)
