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
