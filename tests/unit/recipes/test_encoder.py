"""Text encoders' recipes: signatures, texts, pooling, refusals."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.recipes import deployed_as, describe, discover, recipe_module, uses
from harness.recipes.text.pooling import pooling_of
from harness.recipes.text.sample_texts import SENTENCES
from harness.recipes.tokenizer import load_tokenizer
from tests.unit import recipe_runs
from tests.unit.encoders import KINDS, write_encoder, write_tokenizer
from tests.unit.recipe_runs import answers as run
from tests.unit.recipe_runs import check_signature

TASKS = ("default", "pooling", "question-answering", "text-classification")
SHAPES = {"batch": 4, "tokens": 11}


@pytest.fixture(params=KINDS)
def source(request, tmp_path):
    """A small encoder of each architecture, with weights drawn from a seed."""
    return write_encoder(tmp_path / request.param, request.param)


@pytest.fixture
def bert(tmp_path):
    return write_encoder(tmp_path / "bert", "bert")


def component(source, task, **options):
    if task == "pooling":
        options = {"pooling": "mean", **options}
    return describe(task, task, source, options)


def drawn(part, profile="realistic", index=0, shapes=SHAPES):
    return recipe_runs.drawn(part, shapes, profile, index)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("profile", ["realistic", "unit-normal", "boundary"])
def test_a_task_keeps_its_signature(source, task, profile):
    part = component(source, task)
    check_signature(part, run(part, drawn(part, profile)), SHAPES)


def test_output_names_are_those_people_deploy(bert):
    names = {
        task: [spec.name for spec in component(bert, task).outputs] for task in TASKS
    }

    assert names == {
        "default": ["last_hidden_state"],
        "pooling": ["embeddings"],
        "question-answering": ["start_logits", "end_logits"],
        "text-classification": ["logits"],
    }


@pytest.mark.parametrize(("kind", "types"), [("bert", 1), ("roberta", 0), ("mpnet", 0)])
def test_token_types_are_an_input_where_a_model_has_two(tmp_path, kind, types):
    part = component(write_encoder(tmp_path, kind), "default")
    names = [spec.name for spec in part.inputs]
    assert names[:2] == ["input_ids", "attention_mask"]
    assert names[2:] == ["token_type_ids"] * types


def test_the_default_task_is_the_model_itself(bert):
    part = component(bert, "default")
    feeds = drawn(part, "unit-normal")
    torch.manual_seed(bert.seed)
    config = AutoConfig.from_pretrained(bert.path)
    model = AutoModel.from_config(config, add_pooling_layer=False).eval()
    own = model(**{name: torch.tensor(array) for name, array in feeds.items()})
    assert torch.equal(run(part, feeds)[0], own.last_hidden_state)


def test_zero_shot_is_another_name_of_text_classification(bert):
    one, other = (
        describe(name, name, bert)
        for name in ("text-classification", "zero-shot-classification")
    )
    feeds = drawn(one)
    assert (one.inputs, one.outputs) == (other.inputs, other.outputs)
    assert torch.equal(run(one, feeds)[0], run(other, feeds)[0])


def test_mean_pooling_reads_the_mask_and_normalises_if_it_is_said(bert):
    plain, unit = (component(bert, "pooling", normalize=flag) for flag in (False, True))
    feeds = drawn(plain, "unit-normal")
    hidden = run(component(bert, "default"), feeds)[0].numpy()
    mask = feeds["attention_mask"][..., None]
    expected = (hidden * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(run(plain, feeds)[0], expected, atol=1e-6)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(run(unit, feeds)[0], expected, atol=1e-6)


def test_pooling_of_padding_alone_is_zero_and_not_nan(bert):
    part = component(bert, "pooling", masked=True, normalize=True)
    feeds = drawn(part)
    assert not feeds["attention_mask"][-1].any()
    assert not run(part, feeds)[0][-1].any()


def test_a_fully_masked_row_is_zeros_to_sdpa_and_a_mean_to_eager(bert):
    part = component(bert, "default", masked=True)
    feeds = drawn(part)
    sdpa, eager = (run(part, feeds, attention)[0] for attention in ("sdpa", "eager"))
    assert torch.allclose(sdpa[:-1], eager[:-1], atol=1e-5)
    assert (sdpa[-1] - eager[-1]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"pooling_mode_mean_tokens": True}, ("mean", False)),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
            ("cls", False),
        ),
        ({"pooling_mode": "cls"}, ("cls", False)),
    ],
)
def test_the_model_itself_says_how_it_pools(bert, config, said):
    (bert.path / "1_Pooling").mkdir()
    (bert.path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert pooling_of(bert, {}) == said
    assert pooling_of(bert, {"normalize": True}) == (said[0], True)


@pytest.mark.parametrize(
    ("modules", "pooling", "said"),
    [
        (None, None, 'does not say how it pools .*set pooling = "mean" or "cls"'),
        (None, {"pooling_mode_max_tokens": True}, "pools by max_tokens"),
        (["Transformer", "Pooling", "Dense"], {}, "runs a Dense after the encoder"),
        ("oops", {}, "not as sentence-transformers writes it"),
    ],
)
def test_pooling_that_there_is_no_recipe_for_is_refused(bert, modules, pooling, said):
    if pooling is not None:
        (bert.path / "1_Pooling").mkdir()
        (bert.path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if modules is not None:
        listed = [{"type": f"a.{kind}", "path": ""} for kind in modules]
        text = modules if isinstance(modules, str) else json.dumps(listed)
        (bert.path / "modules.json").write_text(text)

    with pytest.raises(SuiteError, match=said):
        describe("pooling", "pooling", bert)


def test_an_answer_needs_a_start_and_an_end(tmp_path):
    source = write_encoder(tmp_path, "bert", num_labels=3)
    with pytest.raises(SuiteError, match=r"head of 2 labels, start and end; .* has 3"):
        describe("question-answering", "question-answering", source)


def test_a_network_without_such_a_task_is_refused_with_a_message(tmp_path):
    source = write_encoder(tmp_path, "clip_vision_model")
    with pytest.raises(SuiteError, match=r"no AutoModelForQuestionAnswering for mode"):
        run(component(source, "question-answering"), {})


@pytest.mark.parametrize(
    ("architecture", "tasks"),
    [
        ("BertModel", ("default",)),
        ("BertForQuestionAnswering", ("question-answering",)),
        ("BertForSequenceClassification", ("text-classification",)),
    ],
)
def test_discovery_offers_what_the_checkpoint_is_for(tmp_path, architecture, tasks):
    source = write_encoder(tmp_path, "bert", architectures=[architecture])
    assert discover(source) == tasks


def test_a_sentence_encoder_is_offered_pooled_too(bert):
    modules = [
        {"type": f"sentence_transformers.models.{k}", "path": ""}
        for k in ("Transformer", "Pooling")
    ]
    (bert.path / "modules.json").write_text(json.dumps(modules))
    assert discover(bert) == ("default", "pooling")


def test_a_network_in_a_folder_of_its_own_is_refused_by_the_folders_name(tmp_path):
    write_encoder(tmp_path / "0_Transformer", "bert")
    (tmp_path / "config.json").write_text('{"__version__": "0.2.0"}')
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": f"{at}_{kind}"}
        for at, kind in enumerate(("Transformer", "Pooling"))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    source = Source(path=tmp_path)

    with pytest.raises(SuiteError, match=r"give .*/0_Transformer instead"):
        discover(source)
    assert discover(Source(path=tmp_path / "0_Transformer")) == ("default",)


def test_an_encoder_and_decoder_is_no_classifier(tmp_path):
    source = write_encoder(
        tmp_path, "bart", d_model=32, architectures=["BartForSequenceClassification"]
    )
    (task,) = discover(source)
    with pytest.raises(SuiteError, match=r"model_type 'bart'.* Test `default`"):
        describe(task, task, source)
    assert describe("default", "default", source).outputs


@pytest.mark.parametrize("name", ["spm.model", "tokenizer.json"])
def test_a_tokenizer_that_cannot_be_made_is_not_replaced_by_random_ids(tmp_path, name):
    source = write_encoder(tmp_path, "deberta-v2")
    (tmp_path / name).write_bytes(b"version https://git-lfs")
    with pytest.raises(SuiteError, match=rf"has {name}, of which .* sentencepiece"):
        drawn(component(source, "default"))


def test_text_encoders_are_exported_as_they_are_deployed(bert):
    settings = deployed_as(bert)
    assert (settings.exporter, settings.opset) == ("torchscript", 14)
    assert settings.dynamic == ("batch", "tokens", "past")


def test_sentences_go_through_the_tokenizer_padded_and_marked(bert):
    write_tokenizer(bert.path, SENTENCES)
    tokenizer = load_tokenizer(bert.path)
    assert tokenizer is not None
    feeds = drawn(component(bert, "default"), shapes={"batch": 10, "tokens": 12})

    lengths = feeds["attention_mask"].sum(1)
    assert len(set(lengths)) > 2, "texts of different lengths"
    assert (
        feeds["input_ids"][feeds["attention_mask"] == 0] == tokenizer.pad_token_id
    ).all()
    assert (feeds["input_ids"][:, 0] == tokenizer.cls_token_id).all()
    ends = feeds["input_ids"][np.arange(10), lengths - 1]
    assert (ends == tokenizer.sep_token_id).all()


def test_pairs_have_two_types_of_token(bert):
    write_tokenizer(bert.path, SENTENCES)
    feeds = drawn(component(bert, "question-answering"))
    assert set(feeds["token_type_ids"].ravel()) == {0, 1}


def test_a_ranking_is_read_from_embeddings_and_from_two_texts_none():
    angles = np.deg2rad([0.0, 80.0, 10.0, 45.0])
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    read = recipe_module("pooling").use({"embeddings": embeddings})
    assert read["cosines"].shape == (6,)
    assert read["cosines"][0] == pytest.approx(np.cos(angles[1]))
    assert np.argsort(-read["ranking"].sum(1)).tolist() == [1, 2, 0]
    assert recipe_module("pooling").use({"embeddings": embeddings[:2]}) == {}


def test_what_no_recipe_reads_is_not_read(bert):
    assert uses(component(bert, "default"), {}) == {}
