"""Open axes are run at more sizes that the network accepts."""

from math import prod

import pytest

from harness.core.errors import SuiteError
from harness.suite.shapes import not_above
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES

BERT = FIXTURES / "text_tasks" / "bert"
SUITE = f"""
components = ["text_encoder", "unet", "vae_decoder"]
[source]
checkpoint = "{DIGITS.as_posix()}"
[export]
dynamic_axes = ["batch"]
[[shapes]]
batch = 2
height = 16
width = 24
[inputs]
profiles = ["realistic"]
realistic = 1
[backend.mnn]
"""
EVERY = 'dynamic_axes = ["batch", "height", "width"]'


@pytest.fixture
def the_case(tmp_path):
    """Loads the one case of a component."""

    def load(component, old="", new=""):
        path = tmp_path / "parity.toml"
        path.write_text(SUITE.replace(old, new) if old else SUITE, encoding="utf-8")
        (case,) = (c for c in load_suite(path).cases if c.component.name == component)
        return case

    return load


@pytest.fixture
def sizes(the_case):
    """The sizes that a component is run at besides the suite's own."""

    def load(*asked):
        case = the_case(*asked)
        assert [s.layers for s in case.samples[1:]] == [False] * len(case.samples[1:])
        assert len({s.id for s in case.samples}) == len(case.samples)
        return [dict(sample.shapes) for sample in case.samples[1:]]

    return load


def test_an_open_batch_is_run_at_one_to_five(sizes):
    assert sizes("text_encoder") == [{"batch": batch} for batch in (1, 3, 4, 5)]


def test_what_is_baked_in_keeps_its_size(sizes):
    assert sizes("unet") == [
        {"batch": batch, "height": 16, "width": 24} for batch in (1, 3, 4, 5)
    ]


def test_a_unet_is_run_at_sizes_that_it_can_halve(sizes):
    found = sizes("unet", 'dynamic_axes = ["batch"]', EVERY)
    assert len(found) == 4
    for one in found:
        assert one["height"] % 8 == one["width"] % 8 == 0
        assert (one["height"], one["width"]) != (16, 24)


def test_each_open_side_is_run_just_above_the_suites_own_and_at_twice_of_it(sizes):
    found = sizes("vae_decoder", 'dynamic_axes = ["batch"]', EVERY)
    assert {17, 32} <= {one["height"] for one in found}
    assert {25, 48} <= {one["width"] for one in found}
    # One axis at a time, and with the fewest items.
    assert max(prod(one.values()) for one in found) <= 4 * 2 * 16 * 24


def test_what_does_not_fit_into_memory_is_left_out_and_listed(the_case, monkeypatch):
    asked = ("vae_decoder", 'dynamic_axes = ["batch"]', EVERY)
    assert the_case(*asked).too_large == ()
    monkeypatch.setattr("harness.suite.shapes.installed_bytes", lambda: 0)
    case = the_case(*asked)
    found = [dict(sample.shapes) for sample in case.samples if sample.label]
    assert found
    assert max(prod(one.values()) for one in found) <= 2 * 16 * 24
    assert {"batch3", "batch4", "batch5"} <= set(case.too_large)


def test_a_text_is_no_longer_than_the_table_of_positions(tmp_path):
    text = (BERT / "parity.toml").read_text(encoding="utf-8")
    path = tmp_path / "parity.toml"
    path.write_text(text.replace('checkpoint = "."', f'checkpoint = "{BERT}"'))
    case = load_suite(path).cases[0]
    added = [dict(s.shapes) for s in case.samples if s.label]
    assert added == [{"batch": 4, "tokens": 128}, {"batch": 5, "tokens": 66}]


def test_a_vae_is_run_at_odd_sizes(sizes):
    found = sizes("vae_decoder", 'dynamic_axes = ["batch"]', EVERY)
    assert any(one["height"] % 2 for one in found)
    assert any(one["width"] % 2 for one in found)


def test_neighbouring_axes_never_have_the_same_size(sizes):
    text = SUITE.replace("width = 24", "width = 16")
    for one in sizes("vae_decoder", SUITE, text.replace('["batch"]', EVERY[15:])):
        assert one["height"] != one["width"]


def test_nothing_is_added_where_every_size_is_baked_in(sizes):
    assert sizes("unet", '["batch"]', "[]") == []


def test_a_suite_may_keep_to_its_own_sizes(sizes):
    assert sizes("unet", "realistic = 1", "realistic = 1\nmore_sizes = false") == []


def test_a_size_that_a_network_cannot_halve_is_refused_with_those_it_can(sizes):
    text = SUITE.replace('dynamic_axes = ["batch"]', EVERY)
    with pytest.raises(SuiteError) as caught:
        sizes("unet", SUITE, text.replace("height = 16", "height = 18"))
    said = str(caught.value)
    assert "unet: height = 18" in said
    assert "take 16 or 24" in said
    assert "out of dynamic_axes" in said


RECIPE = """
from harness.core.case import TensorSpec
from harness.recipes.types import normal


def signature(source, options):
    shape = {shape}
    return (normal("x", *shape),), (TensorSpec(name="y", shape=shape),)


def build(component, attention=""):
    raise AssertionError


def realistic(component, shapes, step, rng):
    raise AssertionError
"""
AXES = {
    "a length": ("batch", "tokens", 8),
    "two lengths": ("batch", "queries", "keys"),
    "an axis of rank 5": ("batch", "frames", 3, "height", "width"),
    "names that end in digits": ("t1", "t", 8),
    "short names": ("b", "t", "c"),
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Loads the case of a recipe of one's own, whose axes are all open."""

    def load(name, shape, *sizes):
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / f"{name}.py").write_text(RECIPE.format(shape=shape))
        monkeypatch.syspath_prepend(tmp_path)
        symbols = [one for one in shape if isinstance(one, str)]
        sizes = sizes if sizes[1:] else sizes * len(symbols)
        told = zip(symbols, sizes, strict=True)
        lines = "\n".join(f"{symbol} = {size}" for symbol, size in told)
        path = tmp_path / "parity.toml"
        path.write_text(
            f'components = ["net"]\n[component.net]\nrecipe = "{name}"\n'
            f'[source]\ncheckpoint = "."\n[export]\ndynamic_axes = {symbols}\n'
            f"[[shapes]]\n{lines}\n[backend.mnn]\n"
            '[inputs]\nprofiles = ["realistic"]\nrealistic = 1\n'
        )
        return load_suite(path).cases[0]

    return load


@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (2, 5), (4, 3), (4, 8), (6, 2), (8, 6), (12, 4)]
)
@pytest.mark.parametrize("names", [("b", "t"), ("queries", "keys"), ("t1", "t")])
def test_no_two_samples_have_one_label(own, names, one, other):
    name = f"labels_{'_'.join(names)}_{one}_{other}"
    case = own(name, (*names, 8), one, other)
    labels = [sample.id for sample in case.samples]
    assert len(set(labels)) == len(labels)
    assert len({sample.shapes for sample in case.samples}) == len(case.samples)


@pytest.mark.parametrize("axes", AXES)
def test_each_open_axis_of_a_recipe_of_ones_own_is_run_above_its_sizes(own, axes):
    case = own(f"above_{'_'.join(axes.split())}", AXES[axes], 4)
    for symbol in dict(case.samples[0].shapes):
        assert max({dict(sample.shapes)[symbol] for sample in case.samples}) > 4, symbol
    assert all(sample.added for sample in case.samples[1:])
    assert not not_above(case, case.samples)


def test_an_axis_that_ran_at_no_larger_size_is_said(own):
    case = own("said", ("batch", "tokens", 8), 10)
    ran = [s for s in case.samples if dict(s.shapes)["tokens"] <= 10]
    assert not_above(case, ran) == ("tokens above 10",)


def test_a_component_with_sizes_of_its_own_needs_no_others(tmp_path):
    path = tmp_path / "parity.toml"
    path.write_text(
        f'components = ["text_encoder"]\n[source]\ncheckpoint = "{DIGITS.as_posix()}"\n'
        "[backend.mnn]\n[[component.text_encoder.shapes]]\nbatch = 3\n"
    )
    (case,) = load_suite(path).cases
    assert dict(case.samples[0].shapes) == {"batch": 3}

    path.write_text(path.read_text().partition("[[")[0])
    with pytest.raises(SuiteError, match=r"gives sizes to batch of 'text_encoder'"):
        load_suite(path)
