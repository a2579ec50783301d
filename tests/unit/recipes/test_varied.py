"""Inputs drawn by parameters: each input has some, and they have the stated effect."""

from dataclasses import replace

import numpy as np
import pytest

from harness.core.case import VARIED, Sample
from harness.core.errors import SpecError
from harness.engine.tasks import INPUTS
from harness.plugins.tune.draws import independent
from harness.recipes import describe, discover
from harness.recipes.inputs import draw
from harness.recipes.varied import parameters_of
from tests.unit.recipes.test_inputs import COMPONENTS, SHAPES, SOURCE


def sample(knobs, shapes=SHAPES, seed=3):
    return Sample(
        profile=VARIED,
        index=0,
        shapes=shapes,
        seed=seed,
        knobs=tuple(sorted(knobs.items())),
    )


def component(name):
    return describe(name, name, SOURCE)


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("name", COMPONENTS)
def test_either_end_of_all_parameters_draws_what_the_signature_says(name, share):
    part = component(name)
    ends = {name: one.at(share) for name, one in parameters_of(part).items()}
    drawn = draw(part, sample(ends))
    for spec in part.inputs:
        assert drawn[spec.name].shape == spec.bind(dict(SHAPES))
        assert drawn[spec.name].dtype.name == spec.dtype


def test_every_input_of_every_component_has_a_parameter():
    for name in discover(SOURCE):
        part = component(name)
        varied = {name.partition(".")[0] for name in parameters_of(part)}
        assert varied == {spec.name for spec in part.inputs if spec.draw}


def test_a_scale_and_an_offset_are_those_of_the_values():
    part = component("vae_decoder")
    name = part.inputs[0].name
    drawn = draw(part, sample({f"{name}.scale": 0.01, f"{name}.offset": 100.0}))
    assert np.mean(drawn[name]) == pytest.approx(1.0, rel=0.01)
    assert np.std(drawn[name]) == pytest.approx(0.01, rel=0.1)


def test_a_prompt_is_filled_as_far_as_its_parameter_says_and_padded_after():
    part = component("text_encoder")
    knobs = {"input_ids.filled": 0.5, "input_ids.special": 0.0}
    ids = draw(part, sample(knobs))["input_ids"]
    end = ids.max()
    words = round(0.5 * (ids.shape[1] - 2))
    assert (ids[:, 0] == end - 1).all()
    assert (ids[:, 1 : 1 + words] < end - 1).all()
    assert (ids[:, 1 + words :] == end).all()


def test_a_parameter_out_of_its_range_is_refused_and_named():
    part = component("vae_decoder")
    name = part.inputs[0].name
    with pytest.raises(SpecError, match=rf"{name}.scale must be from 0.001 to 10"):
        draw(part, sample({f"{name}.scale": 50.0, f"{name}.offset": 1.0}))


def test_parameters_decide_the_key_of_what_is_drawn_and_a_label_does_not():
    part = component("vae_decoder")
    one, two = independent(part, [SHAPES], VARIED, 2)
    assert INPUTS.key("", one) != INPUTS.key("", two)
    assert INPUTS.key("", one) == INPUTS.key("", replace(one, label="other"))
