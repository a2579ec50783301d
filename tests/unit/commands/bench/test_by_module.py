"""Times of operators are summed up by the model's own modules."""

import onnx
import pytest
from onnx import helper

from harness.commands.bench.by_module import NOWHERE, found_where
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


@pytest.mark.parametrize(
    ("row", "took_s", "guessed"),
    [
        pytest.param(
            [spent(1, "a"), spent(2, "b"), spent(4, "c")],
            {"up.1": 4, "down.0": 3},
            0.0,
            id="one-module-adds-up",
        ),
        pytest.param(
            [spent(1, "reorder"), spent(3, "c")],
            {"up.1": 4},
            0.25,
            id="the-runtimes-own-counts-with-the-next",
        ),
        pytest.param(
            [spent(3, "c"), spent(1, "reorder")],
            {"up.1": 3, NOWHERE: 1},
            0.25,
            id="after-the-last-known-value",
        ),
        pytest.param(
            [spent(5, "layout", "a"), spent(1, "c")],
            {"down.0": 5, "up.1": 1},
            0.0,
            id="with-the-value-that-it-leads-to",
        ),
    ],
)
def test_an_operator_counts_with_a_module_and_no_time_is_lost(row, took_s, guessed):
    found = found_where("case", row, 1.0, PROBES)

    # The slowest module comes first.
    assert [(one["module"], one["ms"]) for one in found["places"]] == [
        (module, 1e3 * took) for module, took in took_s.items()
    ]
    assert sum(one["operators"] for one in found["places"]) == len(row)
    assert found["guessed"] == pytest.approx(guessed)


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
