"""`harness.strategies.inputs`: whatever it draws is within the component's contract."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.case import Source
from harness.recipes import describe, discover
from harness.recipes.checkpoint import vocabulary
from harness.recipes.inputs import LARGEST_SIZE, TIMESTEPS, draw
from harness.strategies import inputs, samples
from tests.places import FIXTURES
from tests.unit.recipes.test_inputs import SOURCE

COMPONENTS = [describe(name, name, SOURCE) for name in discover(SOURCE)]
DECODER = next(part for part in COMPONENTS if part.name == "vae_decoder")
RANGES = {
    "image": (-1.0, 1.0),
    "hint": (0.0, 1.0),
    "timestep": (0, TIMESTEPS - 1),
    "sizes": (0, LARGEST_SIZE),
}
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


SIZES = [{"batch": 1, "height": 8, "width": 24}, {"batch": 3, "height": 4, "width": 4}]


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda part: part.name)
@given(data=st.data())
@QUICK
def test_whatever_is_drawn_is_within_the_contract(component, data):
    sizes = data.draw(st.sampled_from(SIZES))

    feeds = data.draw(inputs(component, [sizes]))

    assert list(feeds) == [spec.name for spec in component.inputs]
    for spec in component.inputs:
        array = feeds[spec.name]
        assert array.shape == spec.bind(sizes)
        assert array.dtype.name == spec.dtype
        assert np.isfinite(array).all()
        if spec.shape[:1] == ("batch",):
            assert len({item.tobytes() for item in array}) == len(array)
        low, high = RANGES.get(spec.draw, (-np.inf, np.inf))
        if spec.draw == "tokens":
            low, high = 0, vocabulary(component.source) - 1
        assert low <= array.min()
        assert array.max() <= high


@given(sample=samples(DECODER))
@QUICK
def test_without_sizes_each_symbol_has_one_and_inputs_have_these(sample):
    (latents,) = draw(DECODER, sample).values()
    sizes = dict(sample.shapes)
    assert latents.shape == DECODER.inputs[0].bind(sizes)
    assert sizes.keys() == {"batch", "height", "width"}


@given(data=st.data())
@QUICK
def test_a_network_that_takes_squares_alone_is_given_squares(data):
    source = Source(path=FIXTURES / "dit", seed=0)
    (name,) = (name for name in discover(source) if name == "transformer")
    transformer = describe(name, name, source)
    sizes = dict(data.draw(samples(transformer)).shapes)
    assert sizes["height"] == sizes["width"]
