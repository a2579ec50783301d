"""A graph's attributes are compared with the program's arguments, without a run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.core.probes import load_probes
from harness.engine.export_files import MODEL, PROBES
from harness.plugins.weights import attribute_rules, attributes
from harness.plugins.weights.attributes import differing_attributes, fewer_bits
from harness.runtimes.onnxruntime.convert import transform_onnx
from tests.unit import nets

PICTURE = nets.component("picture", {"image": ("batch", 8, 6, 6)})


class Operators(nn.Module):
    """One of each operator that has a setting worth holding."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.group_norm = nn.GroupNorm(4, 8, eps=1e-6)
        self.layer_norm = nn.LayerNorm(6, eps=1e-4)

    def forward(self, image):
        x = self.layer_norm(self.group_norm(self.conv(image)))
        x = functional.gelu(x)
        x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return x.softmax(dim=-1)


@pytest.fixture(scope="module", params=["dynamo-18", "dynamo-22"])
def exported(request, tmp_path_factory):
    exporter, _, opset = request.param.partition("-")
    folder = tmp_path_factory.mktemp(request.param)
    nets.export(Operators(), PICTURE, folder, exporter, int(opset))
    return folder


def differing(folder):
    return differing_attributes(load_probes(folder / PROBES), folder / MODEL)


def changed(folder, to, change):
    """Write a copy of the graph with one change made."""
    model = onnx.load(folder / MODEL)
    change(model.graph)
    to.mkdir(exist_ok=True)
    onnx.save(model, to / MODEL)
    (to / PROBES).write_text((folder / PROBES).read_text())
    return differing(to)


def says(kinds, name, value):
    def change(graph):
        node = next(node for node in graph.node if node.op_type in kinds)
        kept = [entry for entry in node.attribute if entry.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    return change


LAYER_NORM = ("LayerNormalization",)
NORMS = ("InstanceNormalization", "GroupNormalization")


def test_a_sound_graph_says_what_the_program_says(exported):
    assert differing(exported) == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((NORMS, "epsilon", 1e-5), "epsilon is 1e-05 in the graph, 1e-06 in PyTorch"),
        ((LAYER_NORM, "epsilon", 1e-5), "epsilon is 1e-05 in the graph, 0.0001 in"),
        ((LAYER_NORM, "axis", -2), "axis is -2 in the graph, -1 in PyTorch"),
        ((["Conv"], "group", 4), "groups is 4 in the graph, 2 in PyTorch"),
        ((["Conv"], "pads", [0, 0, 0, 0]), "padding is [0, 0] in the graph, [1, 1] in"),
        ((["Conv"], "strides", [2, 2]), "strides is [2, 2] in the graph, [1, 1] in"),
        ((["Softmax"], "axis", -2), "axis is -2 in the graph, -1 in PyTorch"),
        ((["Resize"], "nearest_mode", "ceil"), "rounding is ceil in the graph, floor"),
        (
            (["Resize"], "coordinate_transformation_mode", "align_corners"),
            "coordinates is align_corners in the graph, asymmetric in PyTorch",
        ),
    ],
)
def test_another_attribute_is_named_with_both_values(exported, tmp_path, change, words):
    (said,) = changed(exported, tmp_path, says(*change)).values()
    assert words in said


class Resized(nn.Module):
    """A picture in twice its size."""

    def __init__(self, **how):
        super().__init__()
        self.how = how

    def forward(self, image):
        return functional.interpolate(image, scale_factor=2.0, **self.how)


BICUBIC = {"mode": "bicubic", "align_corners": False}
BILINEAR = {"mode": "bilinear", "align_corners": True}
SMOOTH = {"mode": "bicubic", "antialias": True}
RESIZES = {
    "the cubic coefficient is -0.5 in": (BICUBIC, "cubic_coeff_a", -0.5),
    "exclude_outside is 1 in": (BICUBIC, "exclude_outside", 1),
    "antialias is 1 in": (BICUBIC, "antialias", 1),
    "coordinates is asymmetric in": (
        BICUBIC,
        "coordinate_transformation_mode",
        "asymmetric",
    ),
    "coordinates is half_pixel in": (
        BILINEAR,
        "coordinate_transformation_mode",
        "half_pixel",
    ),
    "mode is nearest in": (BILINEAR, "mode", "nearest"),
    "antialias is 0 in": (SMOOTH, "antialias", 0),
    "the cubic coefficient is -0.75 in": (SMOOTH, "cubic_coeff_a", -0.75),
    "exclude_outside is 0 in": (SMOOTH, "exclude_outside", 0),
}


@pytest.mark.parametrize("words", RESIZES)
def test_each_attribute_of_a_resize_is_compared(words, tmp_path):
    how, name, value = RESIZES[words]
    nets.export(Resized(**how), PICTURE, tmp_path, "dynamo", 18)
    right = differing(tmp_path)
    wrong = changed(tmp_path, tmp_path / "wrong", says(("Resize",), name, value))
    assert right == {}
    assert words in "; ".join(wrong.values())


def test_another_number_of_groups_is_found_in_the_shape_that_makes_them(tmp_path):
    nets.export(Operators(), PICTURE, tmp_path, "dynamo", 18)

    def regroup(graph):
        read = next(n for n in graph.node if n.op_type == NORMS[0]).input[0]
        reshape = next(n for n in graph.node if read in n.output)
        tensor = next(t for t in graph.initializer if t.name == reshape.input[1])
        shape = onnx.numpy_helper.to_array(tensor).copy()
        shape[1] = 2
        tensor.CopyFrom(onnx.numpy_helper.from_array(shape, tensor.name))

    (said,) = changed(tmp_path, tmp_path / "changed", regroup).values()

    assert said == "groups is 2 in the graph, 4 in PyTorch"


def test_the_tanh_form_of_gelu_is_found_among_the_nodes(tmp_path):
    class Tanh(nn.Module):
        def forward(self, image):
            return functional.gelu(image, approximate="tanh")

    class Erf(nn.Module):
        def forward(self, image):
            return functional.gelu(image)

    for name, module in (("tanh", Tanh()), ("erf", Erf())):
        (tmp_path / name).mkdir()
        nets.export(module, PICTURE, tmp_path / name, "dynamo", 18)
    probes = load_probes(tmp_path / "erf" / PROBES)

    found = differing_attributes(probes, tmp_path / "tanh" / MODEL)

    assert list(found.values()) == ["GELU's form is tanh in the graph, none in PyTorch"]


def test_the_scale_of_attention_is_the_product_of_its_constants(tmp_path):
    class Attention(nn.Module):
        def forward(self, image):
            rows = image[:, None].flatten(3)
            return functional.scaled_dot_product_attention(rows, rows, rows, scale=0.5)

    nets.export(Attention(), PICTURE, tmp_path, "dynamo", 18)
    assert differing(tmp_path) == {}

    def rescale(graph):
        scales = {n for node in graph.node if node.op_type == "Mul" for n in node.input}
        for tensor in graph.initializer:
            if tensor.name in scales:
                half = torch.tensor(onnx.numpy_helper.to_array(tensor)).numpy() / 2
                tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))
        for node in graph.node:
            if node.op_type == "Constant" and node.output[0] in scales:
                half = onnx.numpy_helper.to_array(node.attribute[0].t) / 2
                node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(half))

    (said,) = changed(tmp_path, tmp_path / "changed", rescale).values()

    assert "in the graph, 0.5 in PyTorch" in said


def test_factors_of_an_added_bias_are_not_the_scale_of_attention():
    make = onnx.helper.make_node
    nodes = [
        make("MatMul", ["chances", "value"], ["out"]),
        make("Softmax", ["biased"], ["chances"]),
        make("Add", ["scores", "bias"], ["biased"]),
        make("Mul", ["places", "wide"], ["bias"]),
        make("MatMul", ["scaled", "key"], ["scores"]),
        make("Mul", ["query", "half"], ["scaled"]),
    ]
    constants = {"wide": np.float32(128), "half": np.float32(0.5)}

    found = {name: (there, here) for name, there, here in attention(nodes, constants)}

    assert found["scale"] == (0.5, 0.5)


def attention(nodes, constants):
    rule = attribute_rules.RULES["scaled_dot_product_attention"]
    return rule(attribute_rules.ProbeNodes(nodes, constants), {"scale": 0.5})


class Padded(nn.Module):
    """A convolution behind a padding of its own."""

    def __init__(self, sides):
        super().__init__()
        self.sides = sides
        self.conv = nn.Conv2d(8, 4, 4, padding=0 if sides else 1)

    def forward(self, image):
        image = functional.pad(image, self.sides) if self.sides else image
        return self.conv(image)


def folded(pads):
    """Fold the padding into the convolution, with other pads."""

    def change(graph):
        conv = next(node for node in graph.node if node.op_type == "Conv")
        conv.input[0] = "image"
        kept = [a for a in conv.attribute if a.name not in {"pads", "auto_pad"}]
        del conv.attribute[:]
        told = {"auto_pad": pads} if isinstance(pads, str) else {"pads": pads}
        new = [onnx.helper.make_attribute(k, v) for k, v in told.items()]
        conv.attribute.extend([*kept, *new])

    return change


@pytest.mark.parametrize(
    ("sides", "pads", "words"),
    [
        ((1, 2, 1, 2), [1, 1, 2, 2], ""),
        ((1, 2, 1, 2), [2, 2, 1, 1], "padding is [2, 2, 1, 1] in the graph, [1, 1, 2"),
        ((2, 1, 1, 2), [1, 2, 2, 1], ""),
        ((1, 2, 1, 2), "SAME_UPPER", ""),
        ((1, 2, 1, 2), "SAME_LOWER", "padding is [2, 2, 1, 1] in the graph, [1, 1, 2"),
        ((), "SAME_UPPER", "padding is [1, 1, 2, 2] in the graph, [1, 1, 1, 1] in"),
    ],
)
def test_a_padding_may_be_folded_into_its_convolution(sides, pads, words, tmp_path):
    nets.export(Padded(sides), PICTURE, tmp_path, "dynamo", 18)
    found = changed(tmp_path, tmp_path / "changed", folded(pads))
    assert bool(found) == bool(words)
    assert words in "; ".join(found.values())


class First(nn.Module):
    def forward(self, image):
        return image.round().argmax(-1)


def test_the_last_of_equal_values_is_not_the_first(tmp_path):
    nets.export(First(), PICTURE, tmp_path, "dynamo", 18)
    change = says(("ArgMax",), "select_last_index", 1)
    found = changed(tmp_path, tmp_path / "changed", change)
    assert "select_last_index is 1 in the graph, 0" in "; ".join(found.values())


@pytest.mark.filterwarnings("ignore")
def test_a_dropout_that_was_exported_in_training_mode_is_found(tmp_path):
    path = tmp_path / "m.onnx"
    net = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Dropout(0.2))
    modes = torch.onnx.TrainingMode
    for mode, module in ((modes.TRAINING, net.train()), (modes.EVAL, net.eval())):
        torch.onnx.export(
            module,
            (torch.ones(2, 8, 4, 4),),
            path,
            training=mode,
            dynamo=False,
            do_constant_folding=False,
        )
        found = list(attributes.left_in_training(onnx.load(path).graph))

        assert len(found) == (mode is modes.TRAINING)


def test_an_operator_whose_weights_have_fewer_bits_is_said(tmp_path):
    nets.export(nn.Linear(6, 8), PICTURE, tmp_path, "dynamo", 18)
    probes = load_probes(tmp_path / PROBES)
    (tmp_path / "int8").mkdir()
    transform_onnx(tmp_path / MODEL, "int8-weights", tmp_path / "int8")
    assert fewer_bits(probes, tmp_path / MODEL) == {}
    assert list(fewer_bits(probes, tmp_path / "int8" / MODEL).values()) == [
        "its weights have fewer bits in the file: 8"
    ]
