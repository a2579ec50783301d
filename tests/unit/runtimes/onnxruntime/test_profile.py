"""ONNX Runtime's profile: the time of each operator, with the values it leads to."""

import onnx
from onnx import helper

from harness.core.case import Device
from harness.engine.export_files import MODEL
from harness.runtimes.onnxruntime.profile import leading_to
from harness.runtimes.onnxruntime.session import open_session
from tests.unit import nets

OUTPUTS = ["map", "pooled"]


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


def test_each_operator_takes_some_time(blocks_files):
    path = blocks_files["dynamo"] / MODEL
    with open_session(path, Device(threads=1), OUTPUTS) as session:
        spent = session.clock(nets.feeds(nets.BLOCKS), 3)

    assert sum(one.took_s for one in spent) > 0
    assert {value for one in spent for value in one.values} >= set(OUTPUTS)
