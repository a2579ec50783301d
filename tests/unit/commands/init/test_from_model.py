"""A model and its tokenizer in memory become a suite."""

import pytest
from transformers import AutoConfig, AutoModelForQuestionAnswering

from harness.commands.init.from_model import suite_of_pair
from harness.core.errors import SuiteError
from harness.recipes.inputs import draw
from harness.recipes.text.sample_texts import QUESTIONS
from tests.unit.encoders import tokenizer_of, write_encoder


@pytest.fixture
def model(tmp_path):
    source = write_encoder(tmp_path / "drawn", "bert")
    config = AutoConfig.from_pretrained(source.path)
    return AutoModelForQuestionAnswering.from_config(config)


def test_a_pair_becomes_a_suite_of_its_own_task(model, tmp_path):
    tokenizer = tokenizer_of([text for pair in QUESTIONS for text in pair])

    suite = suite_of_pair(model, tokenizer, tmp_path / "suite")

    assert [part.name for part in suite.components] == ["question-answering"]
    assert suite.source.seed is None, "its weights are the model's own"
    assert (suite.export.exporter, suite.export.opset) == ("dynamo", 18)
    assert suite.export.dynamic == ("batch", "tokens")
    case = suite.cases[0]
    ids = draw(case.component, case.samples[0])["input_ids"]
    assert (ids[:, 0] == tokenizer.cls_token_id).all()


def test_a_model_without_a_tokenizer_is_a_suite_too(model, tmp_path):
    assert suite_of_pair(model, None, tmp_path / "suite").cases


def test_what_is_there_is_kept_unless_forced(model, tmp_path):
    suite_of_pair(model, None, tmp_path)

    with pytest.raises(SuiteError, match="is there already; give force=True"):
        suite_of_pair(model, None, tmp_path)
    assert suite_of_pair(model, None, tmp_path, force=True).cases


def test_a_suite_that_is_there_is_refused_before_the_model_is_saved(model, tmp_path):
    (tmp_path / "parity.toml").write_text("mine")

    with pytest.raises(SuiteError, match=r"has parity\.toml already"):
        suite_of_pair(model, None, tmp_path)
    assert [path.name for path in tmp_path.glob("[!d]*")] == ["parity.toml"]


def test_something_else_is_refused_in_words(model, tmp_path):
    with pytest.raises(SuiteError, match=r"tokenizer must be .* got str"):
        suite_of_pair(model, "a tokenizer", tmp_path)
