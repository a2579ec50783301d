"""An operator's tensors are found: recorded, moved, inputs, or in the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from harness.core.probes import Probe, ValueKind
from harness.measure.trace import TraceWriter, open_trace
from harness.plugins.patterns.operands import Operands

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(6, 4)).astype(np.float32)
BIAS = RNG.normal(size=6).astype(np.float32)
HIDDEN = RNG.normal(size=(2, 3, 4)).astype(np.float32)
MODEL = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[2,3,4] x) => (float[2,3,6] linear) {{ {nodes} }}
"""
PLAIN = "val_1 = MatMul(hidden, turned) linear = Add(val_1, bias)"
GEMM = "linear = Gemm<transB=1>(hidden, weight, bias)"


def probe(name, op, arguments, kind=ValueKind.COMPUTE, parents=(), **settings):
    return Probe(
        name=name,
        position=0,
        kind=kind,
        op=f"aten.{op}.default",
        onnx=name if kind is ValueKind.COMPUTE else "",
        parents=parents,
        settings=tuple(settings.items()),
        arguments=tuple(arguments),
    )


PROBES = (
    probe("hidden", "mul", [("self", "x")]),
    probe("linear", "linear", [("input", "hidden")], parents=("hidden",)),
    probe("view", "view", [("self", "linear")], ValueKind.MOVE, size=[-1, -1, 2, 3]),
    probe("transpose", "transpose", [("self", "view")], ValueKind.MOVE, dim0=1, dim1=2),
    probe("clone", "clone", [("self", "transpose")], ValueKind.IDENTITY),
    probe("softmax", "softmax", [("self", "clone"), ("other", "x")], dim=-1),
    probe(
        "cat", "cat", [("tensors", "hidden"), ("tensors", "x")], ValueKind.MOVE, dim=1
    ),
    probe("norm", "layer_norm", [("input", "cat")]),
)
NAMED = {made.name: made for made in PROBES}
MADE = HIDDEN @ WEIGHT.T + BIAS


@pytest.fixture
def operands(tmp_path):
    def of(nodes=PLAIN):
        writer = TraceWriter(tmp_path)
        writer.add("hidden", HIDDEN)
        writer.add("linear", MADE)
        writer.add("mask", HIDDEN, is_mask=True)
        writer.close({})
        model = parser.parse_model(MODEL.format(nodes=nodes))
        held = {"turned": WEIGHT.T, "weight": WEIGHT, "bias": BIAS}
        for name, value in held.items():
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        path = tmp_path / "model.onnx"
        onnx.save_model(
            model, path, save_as_external_data=True, location="w.pb", size_threshold=0
        )
        return Operands(open_trace(tmp_path), PROBES, {"x": HIDDEN + 1}, path)

    return of


@pytest.mark.parametrize("nodes", [PLAIN, GEMM])
def test_weights_are_read_in_pytorchs_layout(operands, nodes):
    weights = operands(nodes).of(NAMED["linear"]).weights
    assert np.array_equal(weights["weight"], WEIGHT)
    assert np.array_equal(weights["bias"], BIAS)


def test_a_value_that_was_not_recorded_is_moved_as_the_program_moves_it(operands):
    it = operands().of(NAMED["softmax"])
    wanted = MADE.reshape(2, 3, 2, 3).swapaxes(1, 2)
    assert [(a, n) for a, n, _ in it.arguments] == [("self", "clone"), ("other", "x")]
    assert np.array_equal(it.arguments[0][2], wanted)
    assert np.array_equal(it.arguments[1][2], HIDDEN + 1)


def test_others_are_inputs_and_computed_values_of_the_shape_and_no_masks(operands):
    it = operands().of(NAMED["linear"])
    assert [name for name, _ in it.others((2, 3, 4))] == ["x", "hidden"]
    assert [name for name, _ in it.others((2, 2, 3, 3))] == ["view", "transpose"][1:]


def test_the_parts_of_an_argument_are_put_in_another_order(operands):
    ((words, value),) = operands().of(NAMED["norm"]).reordered()
    assert words == "the parts of cat are exchanged: another order"
    assert np.array_equal(value, np.concatenate([HIDDEN + 1, HIDDEN], axis=1))


def test_a_file_that_is_no_graph_has_no_weights(operands, tmp_path):
    told = operands()
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    assert told.of(NAMED["linear"]).weights == {}


def test_an_operator_that_the_file_lacks_is_skipped_to_the_value_before_it(operands):
    lost = probe("tanh", "tanh", [("self", "linear")], ValueKind.COMPUTE)
    lost = replace(lost, onnx="")
    after = probe("out", "linear", [("input", "tanh")], parents=("tanh",))
    found = operands()
    found = Operands(found.trace, (*PROBES, lost, after), found.feeds, found.path)

    ((place, name, value),) = found.of(after).skipped()

    assert (place, name) == ("tanh", "linear")
    assert np.array_equal(value, MADE)
    assert [*found.of(NAMED["linear"]).skipped()] == []


def test_the_only_input_has_the_wrappers_name_in_a_program(operands):
    found = operands()
    first = probe("first", "linear", [("input", "tensor"), ("weight", "network.w")])
    later = probe(
        "later", "linear", [("input", "hidden"), ("other", "lifted_tensor_0")]
    )
    alone = Operands(
        found.trace, (NAMED["hidden"], first, later), {"y": HIDDEN}, found.path
    )

    assert alone.of(later).tensor("other") is None
    hidden = probe("hidden", "mul", [("self", "tensor")])
    alone = Operands(found.trace, (hidden, first, later), {"y": HIDDEN}, found.path)

    (argument, *_, value), *_ = alone.of(first).arguments
    assert argument == "input"
    assert np.array_equal(value, HIDDEN)
