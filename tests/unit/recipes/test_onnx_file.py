"""`harness.recipes.onnx_file`: the inputs of an ONNX file without a recipe."""

import numpy as np
import onnx
import pytest

from harness.core.case import PROFILES, VARIED, Sample, Source
from harness.recipes import describe
from harness.recipes.inputs import draw

CLASSES = 10
NET = f"""
<ir_version: 9, opset_import: ["" : 17]>
net (float[batch, 4] sample, float[batch] timestep, int64[batch] class_labels,
     float scale) => (float[batch, 4] out)
<float[{CLASSES}, 4] classes>
{{
    named = Gather (classes, class_labels)
    axes = Constant <value_ints = [1]> ()
    steps = Unsqueeze (timestep, axes)
    moved = Add (sample, named)
    later = Mul (moved, steps)
    out = Mul (later, scale)
}}
"""


@pytest.fixture
def component(tmp_path):
    model = onnx.parser.parse_model(NET)
    zeros = [0.0] * CLASSES * 4
    table = onnx.helper.make_tensor("classes", 1, (CLASSES, 4), zeros)
    model.graph.initializer.append(table)
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    return describe("net", "given", Source(path=path))


def drawn(component, profile="realistic", index=1, batch=3):
    sample = Sample(profile=profile, index=index, shapes=(("batch", batch),))
    return draw(component, sample)


@pytest.mark.parametrize("index", range(5))
def test_timesteps_differ_from_item_to_item(component, index):
    steps = drawn(component, index=index)["timestep"]
    assert len(set(steps.tolist())) == 3
    assert steps[0] == [0, 1, 500, 999][index % 4]
    assert ((steps >= 0) & (steps < 1000)).all()


@pytest.mark.parametrize("profile", [p for p in PROFILES if p != VARIED])
def test_classes_lie_within_their_table_in_any_profile(component, profile):
    for index in range(8):
        labels = drawn(component, profile, index)["class_labels"]
        assert labels.dtype == np.int64
        assert len(set(labels.tolist())) == 3
        assert ((labels >= 0) & (labels < CLASSES)).all()


def test_more_items_than_classes_begin_again(component):
    labels = drawn(component, batch=CLASSES + 1)["class_labels"]
    assert set(labels.tolist()) == set(range(CLASSES))


def test_a_lone_number_is_a_timestep(component):
    assert drawn(component, index=3)["scale"] == 999


CACHE = ("batch", 2, "past_sequence_length", 8)


@pytest.mark.parametrize("tokens", [1, "sequence_length"])
@pytest.mark.parametrize("named", ["sum", "total"])
def test_a_decoders_mask_covers_the_cache_and_the_new_tokens(tmp_path, tokens, named):
    total = f"past_sequence_length + {tokens}" if named == "sum" else "total"
    axes = {
        "input_ids": ["batch", tokens],
        "attention_mask": ["batch", total],
        "past_key_values.0.key": list(CACHE),
    }
    path = tmp_path / "decoder.onnx"
    save_with(path, axes)
    part = describe("decoder", "given", Source(path=path))
    sizes = {"batch": 2, "past_sequence_length": 9, "sequence_length": 3}
    symbols = {symbol for spec in part.inputs for symbol in spec.symbols}
    found = {spec.name: spec.bind(sizes) for spec in part.inputs}

    assert found["attention_mask"] == (2, 9 + (tokens if tokens == 1 else 3))
    assert symbols <= set(sizes)


def save_with(path, axes):
    """Write a file that takes inputs of these axes."""
    kinds = {"past_key_values.0.key": onnx.TensorProto.FLOAT}
    given = [
        onnx.helper.make_tensor_value_info(
            name, kinds.get(name, onnx.TensorProto.INT64), shape
        )
        for name, shape in axes.items()
    ]
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)
    node = onnx.helper.make_node("Identity", ["input_ids"], ["y"])
    graph = onnx.helper.make_graph([node], "g", given, [made])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
