"""Stand-ins for real inputs are known of a suite, and named beside its verdict."""

import shutil
from dataclasses import replace

import pytest

from harness.core.case import GIVEN, Source
from harness.plugins.start.init.write import write_suite
from harness.recipes import describe
from harness.recipes.stand_ins import stand_ins
from harness.report.summary import stand_in_words
from harness.suite.suite import load_suite
from tests.places import DIGITS, EXPORTED, FIXTURES
from tests.unit.encoders import write_encoder, write_tokenizer
from tests.unit.reports import record

NAMELESS = '"tokenizer": [\n    "transformers",\n    "CLIPTokenizer"'
NOTHING = '"tokenizer": [\n    null,\n    null'


@pytest.fixture
def wordless(tmp_path):
    """The trained checkpoint as one that has no tokenizer by design."""
    root = tmp_path / "model"
    left = shutil.ignore_patterns("*.toml", "*.png", "tokenizer")
    shutil.copytree(DIGITS, root, ignore=left)
    index = root / "model_index.json"
    text = index.read_text(encoding="utf-8")
    assert NAMELESS in text
    index.write_text(text.replace(NAMELESS, NOTHING), encoding="utf-8")
    return root


def found(suite):
    return {case.component.name: stand_ins(case.component) for case in suite.cases}


def test_of_a_whole_checkpoint_nothing_stands_in():
    suite = load_suite(DIGITS)
    assert set(found(suite).values()) == {()}
    assert {case.stand_ins for case in suite.pipeline_cases} == {()}


def test_without_a_tokenizer_prompts_are_drawn_wherever_text_is_read(wordless):
    write_suite(wordless, wordless / "suite")
    suite = load_suite(wordless / "suite")

    assert found(suite) == {
        **dict.fromkeys(("text_encoder", "unet"), ("prompts",)),
        **dict.fromkeys(("controlnet", "controlled_unet"), ("prompts",)),
        **dict.fromkeys(("vae_encoder", "vae_decoder"), ()),
    }
    drawn = {case.subject: case.stand_ins for case in suite.pipeline_cases}
    assert drawn["text2img"] == ("prompts",)
    assert drawn["img2img"] == ("prompts", "picture")
    assert drawn["canny"] == ("prompts", "hint")


@pytest.mark.parametrize(
    ("folder", "recipe", "kinds"),
    [
        ("channels", "unet", ("weights", "prompts", "scheduler")),
        ("sdxl", "text_encoder_2", ("weights", "prompts")),
        ("flux", "t5_encoder", ("weights", "prompts")),
        ("flux", "vae_decoder", ("weights",)),
        ("text_tasks/bert", "default", ("weights", "prompts")),
    ],
)
def test_what_a_checkpoint_lacks_stands_in(folder, recipe, kinds):
    source = Source(path=FIXTURES / folder, seed=0)
    if folder == "channels":
        component = describe("unet", "unet", source, {"folder": "unet_wide"})
    else:
        component = describe(recipe, recipe, source)
    assert stand_ins(component) == kinds


def test_a_text_model_with_its_tokenizer_is_given_texts(tmp_path):
    source = write_encoder(tmp_path, "bert")
    write_tokenizer(tmp_path, ["some words"])
    assert stand_ins(describe("default", "default", replace(source, seed=None))) == ()


def test_ids_for_a_file_alone_are_drawn():
    path = EXPORTED / "txtai" / "default.onnx"
    assert stand_ins(describe("default", GIVEN, Source(path=path))) == ("prompts",)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([(), ()], ""),
        ([("weights",), ("weights",)], " (weights drawn at random)"),
        (
            [("weights", "prompts"), ("weights",)],
            " (weights and prompts in 1 case drawn at random)",
        ),
        (
            [("weights", "prompts", "hint", "scheduler")],
            (
                " (weights, prompts and hint drawn at random; "
                "Stable Diffusion's DDIM, as no scheduler is given)"
            ),
        ),
    ],
)
def test_it_is_said_in_few_words(kinds, words):
    assert stand_in_words([record(stand_ins=kind) for kind in kinds]) == words


def test_sizes_that_were_not_tried_stand_beside_the_verdict():
    some = [record(too_large=("height64",)), record(too_large=("height64", "batch5"))]
    assert stand_in_words(some) == " (not tried for lack of memory: height64, batch5)"
