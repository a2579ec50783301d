"""`harness.runtimes.graph.onnx_graph`: facts about the values of an exported graph."""

import onnx
import pytest

from harness.runtimes.graph.onnx_graph import (
    graph_values,
    module_scope,
    read_into,
    unread_inputs,
)

NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 4] rows, int64[N] kinds) => (float[N, 4] out, float[N] numbers)
{{
    made = Mul (rows, rows)
    passed = Cast <to = {kind}> (made)
    rectified = Relu (passed)
    sizes = Shape (made)
    shaped = Reshape (rectified, sizes)
    out = Add (shaped, passed)
    numbers = Cast <to = 1> (kinds)
}}
"""


SCOPES = {"made": "/block/Mul", "out": "/Add", "sizes": "/Shape", "numbers": "/Cast"}


@pytest.fixture
def saved(tmp_path):
    def save(kind):
        model = onnx.parser.parse_model(NET.format(kind=kind))
        for node in model.graph.node:
            node.name = SCOPES.get(node.output[0], f"/norm/{node.op_type}")
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return save


def values(path):
    return {one.name: one for one in graph_values(path, module_scope)}


def test_a_cast_to_what_it_is_belongs_to_whoever_made_the_value(saved):
    found = values(saved(onnx.TensorProto.FLOAT))
    assert found["passed"].repeats == "made"
    assert found["passed"].origin == "block"


def test_a_cast_to_another_kind_is_a_value_of_its_own(saved):
    found = values(saved(onnx.TensorProto.FLOAT16))
    assert (found["passed"].repeats, found["passed"].origin) == ("", "norm")
    assert found["numbers"].repeats == ""


def test_a_value_is_read_into_what_is_computed_from_it_and_not_into_its_sizes(saved):
    found = read_into(saved(onnx.TensorProto.FLOAT))
    assert found["made"] == ["passed"]
    assert sorted(found["passed"]) == ["out", "rectified"]
    assert "out" not in found


def test_a_value_that_only_a_graph_within_a_graph_reads_is_read(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        net (bool c, float[2] a, float[2] b) => (float[2] y)
        {
            y = If (c) <
                then_branch = one () => (float[2] p) {
                    p = If (c) <
                        then_branch = two () => (float[2] q) { q = Add (a, b) },
                        else_branch = three () => (float[2] r) { r = Identity (a) }
                    >
                },
                else_branch = four () => (float[2] s) { s = Identity (a) }
            >
        }
    """)
    onnx.save(model, tmp_path / "model.onnx")

    assert read_into(tmp_path / "model.onnx") == {"a": ["y"], "b": ["y"], "c": ["y"]}


def test_values_are_in_the_order_in_which_they_can_be_computed(tmp_path):
    text = """<ir_version: 9, opset_import: ["" : 17]>
    agraph (float[2] x) => (float[2] y) { y = Tanh (h) h = Neg (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "late.onnx")

    found = graph_values(tmp_path / "late.onnx", lambda _: "")

    assert not unread_inputs(tmp_path / "late.onnx")
    assert [(one.name, one.is_constant) for one in found] == [
        ("h", False),
        ("y", False),
    ]
