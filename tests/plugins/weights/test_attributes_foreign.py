"""Each attribute of an operator in a foreign file, of both exporters, is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.core.case import ExportSettings
from harness.plugins.foreign.files.lineup import line_up
from harness.plugins.weights.check import check_graph
from harness.runtimes.pytorch.export import quiet
from tests.unit import nets

PICTURE = nets.component("picture", {"image": ("batch", 8, 8, 8)})


class WrittenOut(nn.Module):
    """A norm of a library, which has no operator of its own."""

    def __init__(self):
        super().__init__()
        self.variance_epsilon = 1e-5

    def forward(self, x):
        mean = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + self.variance_epsilon)


class Operators(nn.Module):
    """Modules with attributes, one after another."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        parts = {
            "conv": nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2),
            "layer": nn.LayerNorm(8, eps=1e-5),
            "group": nn.GroupNorm(4, 8, eps=1e-5),
            "instance": nn.InstanceNorm2d(8, affine=True),
            "batch": nn.BatchNorm2d(8, eps=1e-4),
            "leaky": nn.LeakyReLU(0.1),
            "elu": nn.ELU(0.5),
            "celu": nn.CELU(0.7),
            "average": nn.AvgPool2d(3, 1, 1, count_include_pad=False),
            "most": nn.MaxPool2d(3, 1, 1),
            "transposed": nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1),
            "linear": nn.Upsample(scale_factor=0.5, mode="bilinear"),
            "cubic": nn.Upsample(scale_factor=2.0, mode="bicubic"),
            "hard": nn.Hardsigmoid(),
            "six": nn.ReLU6(),
            "softmax": nn.Softmax(1),
            "log": nn.LogSoftmax(-1),
            "shuffle": nn.PixelShuffle(2),
            "written": WrittenOut(),
            "nearest": nn.Upsample(scale_factor=2.0, mode="nearest"),
        }
        self.parts = nn.ModuleDict(parts)

    def forward(self, image):
        for part in self.parts.values():
            image = part(image)
        return image


class Functions(nn.Module):
    """Functions with attributes, which are no modules."""

    def forward(self, image):
        x = torch.cat((image[:, 4:], image[:, :4]), 1).clamp(-0.5, 0.6).cumsum(1)
        x = x + x.mean(1, keepdim=True) + x.sum((2, 3), keepdim=True)
        x = functional.pad(x * 1.5 + 0.25, (1, 1, 1, 1), mode="reflect").pow(2)
        x = functional.glu(x, 1) + x.topk(4, dim=1).values
        x = x.triu(1) + torch.rsqrt(x.amax(1, keepdim=True) + 1e-3)
        return x.contiguous() + x.argmax(1, keepdim=True)


def exported(module, folder, exporter):
    """Return the file that PyTorch's own command writes, and its probes."""
    path = folder / f"{type(module).__name__}.onnx"
    module, example = module.eval(), (torch.rand(2, 8, 8, 8),)
    names = {"input_names": ["image"], "output_names": ["out"]}
    with quiet():
        if exporter == "dynamo":
            axes = ({0: torch.export.Dim("batch")},)
            how = {"dynamo": True, "dynamic_shapes": axes, "external_data": False}
            torch.onnx.export(module, example, path, **names, **how, verbose=False)
        else:
            how = {"dynamo": False, "dynamic_axes": {"image": {0: "batch"}}}
            torch.onnx.export(module, example, path, opset_version=17, **names, **how)
        settings = ExportSettings(exporter="dynamo", opset=18)
        network = nets.traced(module, PICTURE, settings, example, folder / "store")
        return path, line_up(path, network, {}).probes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Exports of both modules, made once."""
    folder = tmp_path_factory.mktemp("foreign")
    made = {}
    for module, exporter in (
        (Operators(), "dynamo"),
        (Operators(), "torchscript"),
        (Functions(), "dynamo"),
    ):
        (into := folder / f"{type(module).__name__}-{exporter}").mkdir()
        name = type(module).__name__, exporter
        made[name] = (module, *exported(module, into, exporter))
    return made


def told(module, probes, model, folder):
    onnx.save(model, folder / "changed.onnx")
    found = check_graph(module, probes, folder / "changed.onnx")["attributes"]
    return {one["name"] for one in found}


ATTRIBUTES = {
    ("Conv", "dilations"): [1, 1],
    ("Conv", "group"): 4,
    ("LayerNormalization", "epsilon"): 1e-6,
    ("LayerNormalization", "axis"): 1,
    ("InstanceNormalization", "epsilon"): 1e-6,
    ("BatchNormalization", "epsilon"): 1e-5,
    ("BatchNormalization", "training_mode"): 1,
    ("LeakyRelu", "alpha"): 0.101,
    ("Elu", "alpha"): 0.505,
    ("Celu", "alpha"): 0.71,
    ("AveragePool", "count_include_pad"): 1,
    ("AveragePool", "ceil_mode"): 1,
    ("MaxPool", "kernel_shape"): [5, 5],
    ("MaxPool", "pads"): [0, 0, 2, 2],
    ("MaxPool", "dilations"): [2, 2],
    ("ConvTranspose", "output_padding"): [0, 0],
    ("ConvTranspose", "strides"): [1, 1],
    ("Resize", "coordinate_transformation_mode"): "asymmetric",
    ("Resize", "mode"): "nearest",
    ("Resize", "cubic_coeff_a"): -0.5,
    ("Resize", "exclude_outside"): 1,
    ("Resize", "nearest_mode"): "ceil",
    ("HardSigmoid", "alpha"): 0.168,
    ("HardSigmoid", "beta"): 0.45,
    ("Softmax", "axis"): 2,
    ("LogSoftmax", "axis"): 1,
    ("DepthToSpace", "mode"): "DCR",
}
FUNCTIONS = {
    ("Concat", "axis"): 2,
    ("CumSum", "exclusive"): 1,
    ("CumSum", "reverse"): 1,
    ("ReduceMean", "keepdims"): 0,
    ("Pad", "mode"): "edge",
    ("Split", "axis"): 2,
    ("TopK", "largest"): 0,
    ("TopK", "axis"): 2,
    ("Trilu", "upper"): 0,
    ("ArgMax", "select_last_index"): 1,
    ("ArgMax", "axis"): 2,
}
CASES = [
    *(("Operators", "dynamo", *of, value) for of, value in ATTRIBUTES.items()),
    *(("Operators", "torchscript", *of, value) for of, value in ATTRIBUTES.items()),
    *(("Functions", "dynamo", *of, value) for of, value in FUNCTIONS.items()),
]


def changed(model, kind, attribute, value):
    """Change one attribute of each node of a kind that has another value."""
    for node in model.graph.node:
        if node.op_type == kind:
            kept = [one for one in node.attribute if one.name != attribute]
            del node.attribute[:]
            made = onnx.helper.make_attribute(attribute, value)
            node.attribute.extend([*kept, made])


@pytest.mark.parametrize(
    ("module", "exporter"),
    [
        ("Operators", "dynamo"),
        ("Operators", "torchscript"),
        ("Functions", "dynamo"),
    ],
)
def test_a_right_file_says_what_the_module_says(files, module, exporter, tmp_path):
    network, path, probes = files[module, exporter]

    assert told(network, probes, onnx.load(path), tmp_path) == set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_each_changed_attribute_is_told(files, case, tmp_path):
    module, exporter, kind, attribute, value = case
    network, path, probes = files[module, exporter]
    model = onnx.load(path)
    assert any(node.op_type == kind for node in model.graph.node)
    changed(model, kind, attribute, value)

    assert told(network, probes, model, tmp_path)


class Norms(nn.Module):
    """Norms after sums, whose names a file numbers otherwise."""

    def __init__(self):
        super().__init__()
        self.first = nn.GroupNorm(4, 8, eps=1e-5)
        self.second = nn.GroupNorm(4, 16, eps=1e-5)
        self.third = nn.GroupNorm(4, 16, eps=1e-5)

    def forward(self, image):
        x = self.first(image)
        x = torch.cat((x + image, image * 2), 1)
        x = self.second(x + x.mean(1, keepdim=True))
        return self.third(functional.silu(x) + 1)


def test_an_epsilon_is_found_where_parents_have_no_pair(tmp_path):
    network = Norms()
    path, probes = exported(network, tmp_path, "dynamo")
    norms = [p.name for p in probes if p.op.startswith("aten.group_norm")]
    probes = [p if p.name in norms else replace(p, onnx="") for p in probes]
    for at, name in enumerate(norms):
        model = onnx.load(path)
        kinds = [n for n in model.graph.node if "Normalization" in n.op_type]
        kinds[at].attribute[0].CopyFrom(onnx.helper.make_attribute("epsilon", 1e-6))
        onnx.save(model, tmp_path / "changed.onnx")

        found = check_graph(network, probes, tmp_path / "changed.onnx")["attributes"]

        assert [one["probe"] for one in found] == [name]


def test_an_epsilon_that_is_written_out_is_told(files, tmp_path):
    for exporter in ("dynamo", "torchscript"):
        network, path, probes = files["Operators", exporter]
        model = onnx.load(path)
        root = next(n.input[0] for n in model.graph.node if n.op_type == "Sqrt")
        add = next(n for n in model.graph.node if root in n.output)
        tensors = {t.name: t for t in model.graph.initializer}
        tensors |= {
            n.output[0]: n.attribute[0].t
            for n in model.graph.node
            if n.op_type == "Constant"
        }
        (constant,) = (tensors[name] for name in add.input if name in tensors)
        other = onnx.numpy_helper.from_array(np.float32(1e-6), constant.name)
        constant.CopyFrom(other)

        assert told(network, probes, model, tmp_path) == {"epsilon"}
