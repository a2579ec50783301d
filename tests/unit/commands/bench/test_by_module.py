"""Time of operators, rolled up by the model's own modules."""

import onnx
import pytest
from onnx import helper

from harness.commands.bench.by_module import NOWHERE, rolled_up
from harness.core.probes import Kind, Probe
from harness.runtimes.onnxruntime.profile import leading_to
from harness.runtimes.session import Spent


def probe(name, module):
    return Probe(
        name=name,
        position=0,
        kind=Kind.COMPUTE,
        op="aten.conv2d.default",
        module=module,
        source="",
        onnx=name,
    )


def spent(took_s, *values, op="Conv"):
    return Spent(values=values, op=op, took_s=took_s)


PROBES = [probe("a", "down.0.conv1"), probe("b", "down.0.conv2"), probe("c", "up.1")]


def test_operators_of_one_module_add_up_to_the_depth_asked_for():
    made, guessed = rolled_up([spent(1, "a"), spent(2, "b"), spent(4, "c")], PROBES)

    assert [(place.module, place.took_s, place.count) for place in made] == [
        ("up.1", 4, 1),
        ("down.0", 3, 2),
    ]
    assert guessed == 0


def test_no_time_is_lost():
    row = [spent(1, "x"), spent(2, "a"), spent(3, "y"), spent(4, "c"), spent(5, "z")]

    made, _ = rolled_up(row, PROBES)

    assert sum(place.took_s for place in made) == 15


def test_an_operator_of_the_runtimes_own_counts_with_the_next_and_that_is_said():
    made, guessed = rolled_up([spent(1, "reorder"), spent(3, "c")], PROBES)

    assert [(place.module, place.took_s) for place in made] == [("up.1", 4)]
    assert guessed == pytest.approx(0.25)


def test_what_comes_after_the_last_known_value_is_in_no_module():
    made, _ = rolled_up([spent(3, "c"), spent(1, "reorder")], PROBES)

    assert {place.module: place.took_s for place in made} == {"up.1": 3, NOWHERE: 1}


def test_an_operator_counts_with_the_value_that_it_leads_to_not_with_its_neighbour():
    row = [spent(5, "layout", "a"), spent(1, "c")]

    made, guessed = rolled_up(row, PROBES)

    assert {place.module: place.took_s for place in made} == {"down.0": 5, "up.1": 1}
    assert guessed == 0


def test_values_that_a_node_leads_to_come_nearest_first():
    nodes = [
        helper.make_node("Conv", ["in"], ["layout"]),
        helper.make_node("Reorder", ["layout"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["in"], ["elsewhere"]),
    ]
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    assert list(leading_to(nodes[0], readers)) == ["layout", "a", "b"]
