"""Pairs of prompt and seed in `plugins.pipelines.read`: their meaning, refusals."""

import numpy as np
import pytest

from harness.plugins.pipelines.drawing.inputs import draw_inputs
from tests.unit.suite.pipelines import FIRST, IMAGE, TEXT, changed


def test_pairs_take_every_prompt_before_one_comes_again(pipeline):
    text = changed(TEXT, '["three"]', '["one", "two", "three", "four", "five", "six"]')
    found = pipeline(text + "seeds = 18\n")
    prompts = [pair.prompts[0] for pair in found.pairs]
    assert [sorted(prompts[at : at + 6]) for at in (0, 6, 12)] == [
        sorted(set(prompts))
    ] * 3
    assert len({pair.seed for pair in found.pairs}) == 18
    assert len(found.prompts) == 4  # what is compared step by step


@pytest.mark.parametrize("table", [TEXT, IMAGE], ids=["text2img", "img2img"])
def test_a_pair_draws_the_inputs_of_a_pipeline_of_its_prompt(pipeline, table):
    whole = pipeline(table + "seeds = 18\n")
    pair = whole.pairs[3]
    alone = draw_inputs(pipeline(table + f"seed = {pair.seed}\n"))

    assert np.array_equal(draw_inputs(pair).noise, alone.noise)
    for drawn in (draw_inputs(pair), draw_inputs(whole)):
        if alone.image is None or drawn.image is None:
            assert drawn.image is alone.image
        else:
            assert np.array_equal(drawn.image, alone.image)


@pytest.mark.parametrize(
    ("said", "margins"),
    [
        ("", {"psnr": None, "ssim": None}),
        ('metrics = ["psnr", "lpips"]', {"psnr": None, "lpips": None}),
        ("margin = { ssim = 0.99, clip = 0.04 }", {"ssim": 0.1, "clip": 0.2}),
    ],
    ids=["usual", "named", "stated"],
)
def test_the_metrics_of_pairs_are_those_of_the_suite(
    pipeline, monkeypatch, said, margins
):
    """flip-evaluator is installed here, and does not count where it is not named."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    found = pipeline(TEXT + f"seeds = 18\n{said}\n").margins
    assert dict(found) == pytest.approx(margins)


@pytest.mark.parametrize(
    ("said", "key", "message"),
    [
        ("seeds = 16", 5, "seeds = 16 can never say SHIP: that takes 17 pictures"),
        (
            "seeds = 20\nmargin = { flip = 0 }",
            6,
            "flip = 0 allows no error at all, so no build could ship; give more than 0",
        ),
        (
            "seeds = 20\nmargin = { ssim = 1.0 }",
            6,
            "ssim = 1 allows no error at all, so no build could ship; give less than 1",
        ),
        (
            "seeds = 20\nmargin = { psnr = 0 }",
            6,
            "psnr = 0 allows any error, so every build would ship; give decibels",
        ),
        ("seeds = 20\nmargin = { lpisp = 0.1 }", 6, "'lpips'"),
        ("seeds = 20\nmargin = { read = 0.1 }", 6, "give the pipeline a `reader`"),
        ("seeds = 20\nmargin = {}", 6, "names no metric"),
        ('seeds = 20\nmetrics = ["lpisp"]', 6, "'lpips'"),
        ('seeds = 20\nmetrics = ["read"]', 6, "unknown 'read' in 'metrics'"),
        (
            'seeds = 20\nmargin = { psnr = 40 }\nmetrics = ["ssim"]',
            7,
            "leave out 'metrics'",
        ),
        ('metrics = ["psnr"]', 5, "give their number as `seeds` too"),
        ('seeds = 20\nmargin = "bf16"', 6, "'bfloat16'"),
        ('margin = "float16"', 5, "give their number as `seeds` too"),
    ],
)
def test_pairs_that_could_decide_nothing_are_refused(refused, said, key, message):
    refused(TEXT + said + "\n", FIRST + key - 1, message)
