"""Hypothesis strategies for property tests of a network: inputs of a component.

from hypothesis import given
from harness.strategies import inputs

@given(feeds=inputs(component))
def test_its_output_is_finite(feeds):
    assert np.isfinite(run(feeds)).all()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from harness.core.case import PROFILES, VARIED, Component, Sample
from harness.recipes import recipe_module
from harness.recipes.inputs import draw
from harness.recipes.varied import parameters_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from numpy.typing import NDArray

_BATCHES: Final = (1, 2, 3)
_SIZES: Final = (8, 16, 24)
"""Sizes of every other symbol, such as ``height`` or ``tokens``."""

_STEPS: Final = 64
_SEEDS: Final = 2**31


def inputs(
    component: Component, sizes: Sequence[Mapping[str, int]] = ()
) -> SearchStrategy[dict[str, NDArray[Any]]]:
    """Return a strategy for complete sets of inputs of one component.

    A set has a read-only array for each input, by name, in the order of the inputs. An
    array has the shape and dtype of the component's signature and finite values in the
    range of the input's kind. No two items of a batch are equal. Values are drawn as
    the profiles of a suite draw them (realistic, large mean, boundary, …), or between
    these profiles. A failing set shrinks to a simple profile, the smallest sizes, seed
    0 and the smallest parameters.

    Args:
        component: The component, for example one of `load_suite(path).components`.
        sizes: Sizes by symbol to choose from, such as
            ``{"batch": 1, "height": 16, "width": 16}``. Without them, a batch has up to
            three items, and other sizes are from 8 to 24.

    """
    return samples(component, sizes).map(partial(draw, component))


def samples(
    component: Component, sizes: Sequence[Mapping[str, int]] = ()
) -> SearchStrategy[Sample]:
    """Return a strategy for the samples that `inputs` draws its arrays from.

    A sample is one line: profile, seed, sizes and parameters.
    `harness.recipes.inputs.draw` makes the same arrays from it on every machine.
    """
    shapes = _shapes(component, sizes)
    seeds = st.integers(0, _SEEDS - 1)
    profiled = st.builds(
        Sample,
        profile=st.sampled_from([*PROFILES]),
        index=st.integers(0, _STEPS - 1),
        shapes=shapes,
        seed=seeds,
    )
    shares = st.floats(0.0, 1.0, allow_subnormal=False)
    values = {
        name: shares.map(parameter.at)
        for name, parameter in sorted(parameters_of(component).items())
    }
    varied = st.builds(
        Sample,
        profile=st.just(VARIED),
        index=st.just(0),
        shapes=shapes,
        seed=seeds,
        knobs=st.fixed_dictionaries(values).map(lambda drawn: tuple(drawn.items())),
    )
    return profiled | varied


def _shapes(
    component: Component, sizes: Sequence[Mapping[str, int]]
) -> SearchStrategy[tuple[tuple[str, int], ...]]:
    if sizes:
        return st.sampled_from([tuple(sorted(size.items())) for size in sizes])
    symbols = sorted({symbol for spec in component.inputs for symbol in spec.symbols})
    drawn = {
        symbol: st.sampled_from(_BATCHES if symbol == "batch" else _SIZES)
        for symbol in symbols
    }
    unfit = getattr(recipe_module(component.recipe), "unfit", None)
    fixed = st.fixed_dictionaries(drawn)
    if unfit is not None:  # such as a network that takes only squares
        fixed = fixed.filter(lambda one: not unfit(component.source, one)[0])
    return fixed.map(lambda one: tuple(one.items()))
