"""Operators between modules run again with one change, to find what they lack."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from harness.core.probes import Probe, ValueKind
from harness.measure.trace import TraceWriter, open_trace
from harness.plugins.patterns.mended import Between, mended
from harness.plugins.patterns.operands import Operands

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
MODEL = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[2,4,8] x) => (float[2,4,8] y)
    <float[8,8] w, float[2,4,4] c, int64[1] zero = {{0}}, int64[1] four = {{4}},
     int64[1] eight = {{8}}, int64[1] one = {{1}}, int64[1] two = {{2}},
     int64[3] right = {{0, 1, 3}}, int64[3] wrong = {{0, 1, 1}},
     int64[3] all = {{2, 3, 8}}>
    {{ {nodes} y = MatMul(last, w) }}
"""
CONSTANTS = {
    "w": np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32),
    "c": np.random.default_rng(2).normal(size=(2, 4, 4)).astype(np.float32),
}
ROTARY = """
    a = Slice(x, {0}) b = Slice(x, {1})
    ac = Mul(a, c) bc = Mul(b, c) minus = Sub(ac, b) plus = Add(bc, a)
    last = Concat<axis=2>(minus, plus)
"""
HALVES = ROTARY.format("zero, four, two, one", "four, eight, two, one")
PAIRS = ROTARY.format("zero, eight, two, two", "one, eight, two, two")
WRITE = """
    lines = Reshape({0}, line) rows = Expand(lines, all) some = Slice(x, one, four, one)
    last = ScatterElements<axis=1>(x, rows, some)
"""
FLAT = "line = Constant<value = int64[3] {1, 3, 1}>() "
DROPPED = {
    "tanh": "s = Sin(x) t = Tanh(s) last = Cos(t)",
    "softmax": "s = Sin(x) t = Softmax<axis = -1>(s) last = Cos(t)",
    "SiLU": "s = Sin(x) i = Sigmoid(s) t = Mul(s, i) last = Cos(t)",
}
NOT_THERE = "s = Sin(x) last = Cos(s)"


def model(nodes):
    made = parser.parse_model(MODEL.format(nodes=nodes))
    held = {tensor.name: tensor for tensor in made.graph.initializer}
    for name, value in CONSTANTS.items():
        if name in held:
            made.graph.initializer.remove(held[name])
        made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return made


def run(nodes):
    return ReferenceEvaluator(model(nodes)).run(None, {"x": X})[0]


def words(right, wrong, actual=None):
    """Return what is said of a graph that has the wrong nodes."""
    graph = model(wrong)
    held = {t.name: onnx.numpy_helper.to_array(t) for t in graph.graph.initializer}
    between = Between(graph.graph.node, {"x": X}, held, graph.opset_import)
    actual = run(wrong) if actual is None else actual
    return [text for text, _ in mended(between, "y", run(right), actual)]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        *(
            (nodes, NOT_THERE, f"{name} is not in the file: behind Sin it gives")
            for name, nodes in DROPPED.items()
        ),
        ("t = Tanh(x) last = Sin(t)", "last = Sin(x)", "the file: in front it gives"),
        (HALVES, PAIRS, "it takes every second place along axis 2, not one half"),
        (PAIRS, HALVES, "it takes one half along axis 2, not every second place"),
        (
            FLAT + WRITE.format("right"),
            FLAT + WRITE.format("wrong"),
            "along axis 1 it does not write place 3, and 1 has what 3 gets",
        ),
    ],
)
def test_the_one_change_that_gives_pytorchs_value_is_said(right, wrong, said):
    (text,) = words(right, wrong)
    assert said in text


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("s = Sin(x) t = Tanh(s) u = Exp(t) last = Cos(u)", NOT_THERE),
        ("t = Tanh(x) last = Sin(t)", "last = Cos(x)"),
        (HALVES, PAIRS.replace("Sub", "Add")),
        (NOT_THERE, NOT_THERE),
    ],
)
def test_nothing_is_said_where_no_one_change_explains_all_of_it(right, wrong):
    assert words(right, wrong) == []


def test_nothing_is_said_of_the_file_where_the_runtime_has_another_value():
    other = run(NOT_THERE) + np.float32(0.1)
    assert words(DROPPED["tanh"], NOT_THERE, other) == []


@pytest.mark.parametrize("op", ["Sequential", "aten.matmul.default"])
def test_modules_alone_are_run_again_from_the_values_that_are_known(tmp_path, op):
    onnx.save(model(NOT_THERE), tmp_path / "model.onnx")
    writer = TraceWriter(tmp_path)
    writer.add("net", run(DROPPED["tanh"]))
    writer.close({"net": 1e-7})
    probe = Probe(
        name="net", position=0, kind=ValueKind.COMPUTE, op=op, module="net", onnx="y"
    )
    trace = open_trace(tmp_path)
    it = Operands(trace, [probe], {"x": X}, tmp_path / "model.onnx").of(probe)

    found = [text for text, _ in it.mended(trace["net"], run(NOT_THERE))]

    assert bool(found) == (op == "Sequential")
