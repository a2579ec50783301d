"""Cuts of a graph end at the nearest known values, and few groups hold them all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.runtimes.graph.cuts import grouped, nearest

DIAMOND = {"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": ["x"]}


def test_a_cut_ends_at_the_nearest_known_values():
    loop = {"b": ["a"], "a": ["b", "x"]}  # of views
    assert nearest("d", DIAMOND, {"b", "x"}) == ("b", "x")
    assert nearest("d", DIAMOND, {"a", "b", "c", "x"}) == ("b", "c")
    assert nearest("x", DIAMOND, {"a"}) == ()
    assert nearest("b", loop, {"x"}) == ("x",)
    assert grouped(["k"], {"k": []}, {"k"}) == ()  # a constant


@st.composite
def graphs(draw):
    """Values that are each computed from earlier ones."""
    count = draw(st.integers(1, 30))
    names = [f"v{n}" for n in range(count)]
    inputs = {
        name: draw(st.lists(st.sampled_from(["x", *names[:n]]), min_size=1, max_size=3))
        for n, name in enumerate(names)
    }
    return names, inputs, draw(st.sets(st.sampled_from(names)))


@given(graphs())
def test_every_known_value_is_made_once_and_no_group_hands_one_through(graph):
    names, inputs, watched = graph
    known = {"x", *watched}
    ordered = [name for name in names if name in watched]

    groups = grouped(ordered, inputs, known)

    assert sorted(name for group in groups for name in group.made) == sorted(ordered)
    for group in groups:
        assert not set(group.made) & set(group.given)
        for name in group.made:
            assert set(nearest(name, inputs, known)) <= set(group.given)
