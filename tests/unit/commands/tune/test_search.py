"""Which inputs are tried: independent draws that can be repeated, and a search."""

import math
from collections import Counter

import numpy as np
import pytest

from harness.commands.tune.inputs import (
    FAMILIES,
    REALISTIC,
    Space,
    drawn,
    independent,
    shapes_of,
)
from harness.commands.tune.search import Known, note, search
from harness.core.case import VARIED
from harness.recipes import describe
from harness.recipes.inputs import draw
from harness.recipes.varied import Knob, knobs_of
from harness.suite.suite import load_suite
from tests.unit.recipes.test_inputs import ROOT, SOURCE

SHAPES = ((("batch", 1), ("height", 8), ("width", 8)),)
SPACE = Space(
    component=describe("vae_decoder", "vae_decoder", SOURCE), shapes=SHAPES, seed=0
)


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_can_be_repeated_and_no_two_are_alike(family):
    once = list(independent(SPACE, family, 40))

    assert once == list(independent(SPACE, family, 40))
    assert len({sample.id for sample in once}) == 40
    assert len({(sample.seed, sample.knobs) for sample in once}) == 40


def test_more_draws_begin_with_the_same_ones():
    few, many = (list(independent(SPACE, VARIED, count)) for count in (5, 20))

    assert many[:5] == few


def test_another_seed_draws_others():
    other = Space(component=SPACE.component, shapes=SHAPES, seed=1)

    one, two = (next(independent(space, VARIED, 1)) for space in (SPACE, other))
    assert one.knobs != two.knobs
    assert one.id != two.id


def test_each_size_is_drawn_for_the_same_share_of_the_time():
    sizes = [(("batch", 1), ("height", side), ("width", side)) for side in (4, 8, 16)]
    space = Space(component=SPACE.component, shapes=tuple(sizes), seed=0)
    rng = np.random.default_rng(0)

    times = Counter[int]()
    for _ in range(4000):
        side = dict(space.sizes(rng))["height"]
        times[side] += side * side

    assert max(times.values()) < 1.3 * min(times.values())


def test_every_decade_of_a_knob_is_as_likely():
    knob = Knob(low=1e-3, high=1e3, even_in_decades=True)
    rng = np.random.default_rng(0)

    decades = [math.log10(drawn(knob, share)) for share in rng.random(6000)]

    counts, _ = np.histogram(decades, bins=6, range=(-3, 3))
    assert min(counts) > 900


def test_sizes_are_the_suites_and_an_open_batch_goes_one_beyond():
    suite = load_suite(ROOT / "fixtures" / "digits")
    cases = [case for case in suite.cases if case.subject == "unet"]

    sizes = [dict(shapes) for shapes in shapes_of(cases)]

    assert sorted(size["batch"] for size in sizes) == [1, 2, 3]
    assert {(size["height"], size["width"]) for size in sizes} == {(16, 16)}


def test_sizes_that_are_too_large_to_watch_are_not_drawn_at():
    suite = load_suite(ROOT / "fixtures" / "sd15")
    cases = [case for case in suite.cases if case.subject == "unet"]

    sizes = [dict(shapes) for shapes in shapes_of(cases)]

    assert {(size["height"], size["width"]) for size in sizes} == {(32, 48), (8, 16)}
    assert {size["batch"] for size in sizes} == {1, 2}


def badness(sample):
    """Worst where the scale is near 0.02 and the offset near 300."""
    knobs = dict(sample.knobs)
    name = SPACE.component.inputs[0].name
    away = [
        math.log10(knobs[f"{name}.scale"] / 0.02),
        math.log10(knobs[f"{name}.offset"] / 300.0),
    ]
    return -math.hypot(*away)


def searched(count, seed=0):
    """What a search tries after some plain draws."""
    space = Space(component=SPACE.component, shapes=SHAPES, seed=seed)
    known: Known = {}
    found = []

    def measure(sample):
        found.append(sample)
        return {"case": badness(sample)}

    for sample in independent(space, VARIED, 20):
        note(known, sample, {"case": badness(sample)})
    search(space, VARIED, count, measure, known)
    return space, found, known["case"][0]


def test_a_search_comes_nearer_the_worst_than_as_many_draws():
    better = 0
    for seed in range(5):
        space, found, worst = searched(60, seed)
        plain = max(map(badness, independent(space, VARIED, 20 + len(found))))
        better += worst > plain

    assert better >= 4


def test_a_point_of_a_search_can_be_drawn_again_from_what_is_kept_of_it():
    _, found, _ = searched(20)

    assert found == searched(20)[1]
    assert len(found) == 20
    for sample in found:
        assert set(dict(sample.knobs)) == set(knobs_of(SPACE.component))
        draw(SPACE.component, sample)


def test_without_knobs_a_search_goes_on_from_the_step_that_was_worst():
    known: Known = {}
    found = []

    def measure(sample):
        found.append(sample)
        return {"case": -abs(sample.index - 40)}

    search(SPACE, REALISTIC, 200, measure, known)

    (score, worst) = known["case"]
    assert score == max(-abs(sample.index - 40) for sample in found[:100])
    assert {sample.index for sample in found[100:]} == {worst.index}
    assert len({sample.seed for sample in found[100:]}) == 100


def test_no_search_is_no_search():
    search(SPACE, VARIED, 0, lambda _: pytest.fail("nothing was asked for"), {})
