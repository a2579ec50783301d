"""The inputs that `parity tune` tries are independent draws that can be repeated."""

import math
from collections import Counter

import numpy as np
import pytest

from harness.core.case import VARIED
from harness.core.errors import SuiteError
from harness.core.settings import Settings
from harness.plugins.pipelines.case import PipelineCase
from harness.plugins.tune.draws import REALISTIC, independent, shapes_of
from harness.plugins.tune.many import Effort
from harness.plugins.tune.run import run_tuning
from harness.recipes import describe
from harness.recipes.varied import InputParameter
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES
from tests.unit.recipes.test_inputs import SOURCE

SHAPES = ((("batch", 1), ("height", 8), ("width", 8)),)
DECODER = describe("vae_decoder", "vae_decoder", SOURCE)


@pytest.mark.parametrize("family", [REALISTIC, VARIED])
def test_draws_can_be_repeated_and_no_two_are_alike(family):
    once = list(independent(DECODER, SHAPES, family, 40))

    assert once == list(independent(DECODER, SHAPES, family, 40))
    assert len({sample.id for sample in once}) == 40
    assert len({(sample.seed, sample.knobs) for sample in once}) == 40


def test_more_draws_begin_with_the_same_ones():
    few, many = (list(independent(DECODER, SHAPES, VARIED, count)) for count in (5, 20))

    assert many[:5] == few


def test_another_seed_draws_others():
    one, two = (next(independent(DECODER, SHAPES, VARIED, 1, seed)) for seed in (0, 1))

    assert one.knobs != two.knobs
    assert one.id != two.id


def test_each_size_is_drawn_for_the_same_share_of_the_time():
    sizes = [(("batch", 1), ("height", side), ("width", side)) for side in (4, 8, 16)]

    times = Counter[int]()
    for sample in independent(DECODER, sizes, REALISTIC, 4000):
        side = dict(sample.shapes)["height"]
        times[side] += side * side

    assert max(times.values()) < 1.3 * min(times.values())


def test_every_decade_of_a_parameter_is_as_likely():
    parameter = InputParameter(low=1e-3, high=1e3, even_in_decades=True)
    rng = np.random.default_rng(0)

    decades = [math.log10(parameter.at(share)) for share in rng.random(6000)]

    counts, _ = np.histogram(decades, bins=6, range=(-3, 3))
    assert min(counts) > 900


def test_sizes_are_the_suites_and_an_open_batch_goes_one_beyond():
    suite = load_suite(DIGITS)
    cases = [case for case in suite.cases if case.subject == "unet"]

    sizes = [dict(shapes) for shapes in shapes_of(cases)]

    # Layers are compared at batch 1 alone.
    assert sorted(size["batch"] for size in sizes) == [1, 2]
    assert {(size["height"], size["width"]) for size in sizes} == {(16, 16)}


def test_sizes_that_are_too_large_to_watch_are_not_drawn_at():
    suite = load_suite(FIXTURES / "sd15")
    cases = [case for case in suite.cases if case.subject == "unet"]

    sizes = [dict(shapes) for shapes in shapes_of(cases)]

    assert {(size["height"], size["width"]) for size in sizes} == {(32, 48), (8, 16)}
    assert {size["batch"] for size in sizes} == {1, 2}


def test_a_pipeline_draws_pairs_of_prompt_and_seed_of_one_picture_each():
    suite = load_suite(DIGITS)
    (case,) = suite.select(("text2img/mnn/fp32",))
    assert isinstance(case, PipelineCase)

    (first, own), *pairs = case.drawn(5, 0)

    assert [first, *(one for one, _ in pairs)] == [one for one, _ in case.drawn(5, 0)]
    assert own.pipeline.prompts == case.pipeline.prompts
    assert {len(one.pipeline.texts) for _, one in pairs} == {1}
    assert {one.pipeline.prompts[0] for _, one in pairs} == set(own.pipeline.prompts)
    assert not any(one.pipeline.attribution for _, one in (*pairs, (first, own)))
    others = (*case.drawn(5, 0), *case.drawn(5, 1))
    assert len({sample.id for sample, _ in others}) == 11


@pytest.mark.parametrize("pattern", ["text2img/mixed/*", "*2img/mnn/*"])
def test_a_pipeline_is_tuned_by_its_name_and_in_one_runtime(pattern):
    with pytest.raises(SuiteError, match="a pipeline is tuned only by its name"):
        run_tuning(load_suite(DIGITS), [pattern], Effort(), Settings())
