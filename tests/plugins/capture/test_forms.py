"""Recorded calls: which are kept, names of tensors, and which sizes are open."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import harness
from harness.core.received import DamagedError
from harness.plugins.capture.forms import forms_of
from harness.recipes.nested import check_tree, put_together, taken_apart
from tests.plugins.capture import nets

PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
)
LEAVES = PLAIN | st.integers(1, 3).map(lambda size: torch.arange(float(size)))
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def equal(one, two):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, list | tuple):
        return (
            type(one) is type(two)
            and all(map(equal, one, two))
            and len(one) == len(two)
        )
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(
            equal(one[key], two[key]) for key in one
        )
    return one == two


@given(NESTED)
def test_what_is_taken_apart_is_put_together_again(value):
    tensors = {}
    tree = taken_apart(value, "x", tensors)
    check_tree(tree, len(tensors))

    assert equal(put_together(tree, list(tensors.values()), {}), value)


@pytest.mark.parametrize(
    "tree",
    [
        {"tensor": 1},
        {"tensor": -1},
        {"list": [{"tensor": "0"}]},
        {"value": [[{"tensor": 5}]]},
    ],
)
def test_a_tree_that_names_a_tensor_which_is_not_there_is_refused(tree):
    with pytest.raises(DamagedError):
        check_tree(tree, 1)


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "no.such:Class"])
def test_data_names_no_code_that_runs(name):
    with pytest.raises(DamagedError, match="no data class"):
        put_together({"data": name, "fields": {}}, [], {})


def recorded(net, *calls):
    with harness.capture(net=net) as found, torch.no_grad():
        for args in calls:
            net(*args)
    forms, notice = forms_of(found["net"])
    assert not notice
    (form,) = forms.values()
    return form.captured


def test_tensors_are_named_by_their_paths():
    net, batch = nets.Nested().eval(), nets.Batch(torch.randn(2, 8), 2.0, "a")
    with harness.capture(net=net) as found, torch.no_grad():
        net(batch, more=[torch.randn(2, 16)])
    call = found["net"].calls[0]

    assert list(call.inputs) == ["batch.values", "more.0"]
    assert list(call.outputs) == ["sample", "states.0"]


def test_sizes_that_differ_are_open_and_those_that_move_together_have_one_name():
    net = torch.nn.Bilinear(4, 4, 3).eval()
    shapes = recorded(
        net, *((torch.randn(size, 4), torch.randn(size, 4)) for size in (1, 2, 5))
    )

    assert [one.shape for one in shapes.inputs] == [["batch", 4], ["batch", 4]]
    assert [one.shape for one in shapes.outputs] == [["batch", 3]]
    assert shapes.calls == [{"batch": 1}, {"batch": 2}, {"batch": 5}]


@pytest.mark.parametrize(
    ("net", "size"),
    [
        (torch.nn.Upsample(scale_factor=2), "2*height"),
        (torch.nn.MaxPool2d(2, ceil_mode=True), "height/2"),
        (torch.nn.ZeroPad2d((0, 0, 1, 2)), "height+3"),
    ],
)
def test_a_size_of_an_output_follows_from_an_input(net, size):
    found = recorded(
        net.eval(), *((torch.randn(1, 2, height, 8),) for height in (4, 7, 9))
    )

    assert found.outputs[0].shape[2] == size


def test_an_output_whose_size_follows_in_no_way_leaves_no_axis_open():
    class Squares(torch.nn.Module):
        def forward(self, x):
            return torch.zeros(x.shape[0] ** 2)

    found = recorded(Squares().eval(), *((torch.randn(size),) for size in (2, 3, 4)))

    assert found.opened == []
    assert found.calls[0] == {"batch": 2, "output_output_0": 4}


@pytest.mark.parametrize("count", [1, 7, 8, 30, 100])
def test_calls_are_kept_evenly_and_none_of_two_kinds_in_turn_is_lost(count):
    net = torch.nn.Identity().eval()
    with harness.capture(net=net, samples=8) as found:
        for at in range(count):
            net(torch.full((1,), float(at)))
    kept = [int(call.inputs["input"]) for call in found["net"].calls]
    gaps = [two - one for one, two in pairwise(kept)]

    assert len(kept) == min(count, 8)
    assert kept[0] == 0
    assert max(gaps, default=1) <= 3 * max(min(gaps, default=1), 1)
    assert count < 8 or {at % 2 for at in kept} == {0, 1}


def test_a_copy_is_kept_of_what_the_program_changes_later():
    net, x = torch.nn.Identity().eval(), torch.zeros(2)
    with harness.capture(net=net) as found:
        net(x)
        x += 1.0

    assert found["net"].calls[0].inputs["input"].tolist() == [0.0, 0.0]
