"""A message names what ONNX Runtime lacks, its module and line, and a fix."""

from dataclasses import replace
from functools import partial

import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

from harness.core.case import Device, TensorSpec
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL, PROBES
from harness.runtimes.onnxruntime.session import open_session
from tests.unit import nets

DEVICE = Device(threads=1)
SHAPE = ("batch", 4, 8)
PART = replace(
    nets.BLOCKS,
    name="small",
    inputs=(TensorSpec(name="x", shape=SHAPE, draw="normal"),),
    outputs=(TensorSpec(name="y", shape=SHAPE),),
)


class Net(nn.Module):
    """Convolutions of a type of numbers that is not float32, or is."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        self.inner = nn.Sequential(*(nn.Conv1d(4, 4, 3, padding=1) for _ in range(2)))
        self.inner.to(dtype)

    def forward(self, x):
        return self.inner(x.to(self.dtype)).float()


class Written(nn.Module):
    """An operator that ONNX defines by others, which the runtime writes out."""

    def forward(self, x):
        return nn.functional.gelu(x.double()).float()


class Whole(nn.Module):
    """A product of whole numbers that ONNX's operator is not for."""

    def forward(self, x):
        short = x.to(torch.int16)
        return (short @ short.transpose(1, 2)).float().sum(-1, keepdim=True) + x


def exported(module, folder, exporter="dynamo", opset=18):
    nets.export(module.eval(), PART, folder, exporter, opset, dynamic=("batch",))
    return folder / MODEL


def refused(path):
    with (
        pytest.raises(StageError, match=r"refuses model\.onnx") as caught,
        open_session(path, DEVICE, ["y"]),
    ):
        pass
    assert caught.value.outcome is Outcome.LOAD
    assert "ONNXRuntimeError" in caught.value.log, "its own words are kept"
    assert "ONNXRuntimeError" not in str(caught.value)
    return str(caught.value)


NARROW = "compute that line in float32, or rewrite it."
HERE = "test_load_errors.py:"
NETS = {
    "kernel": (
        *(Net(torch.float64), "dynamo", 18),
        ["CPUExecutionProvider has no kernel for Conv of float64.", "2 places", NARROW],
        ["inner.0 (aten.conv1d.default", HERE],
    ),
    "written-out": (
        *(Written(), "dynamo", 20),
        ["CPUExecutionProvider has no kernel for Erf of float64.", NARROW],
        ["(aten.gelu.default", HERE],
    ),
    "type": (
        *(Whole(), "dynamo", 18),
        ["opset 18 has no MatMul of int16.", NARROW],
        ["(aten.matmul.default", HERE],
    ),
    "torchscript": (
        *(Net(torch.float64), "torchscript", 17),
        ["no kernel for Conv of float64. It comes from inner.0 (Conv1d)"],
        [],
    ),
}


# torch's own, of both exporters.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", NETS)
def test_an_operator_that_ort_lacks_is_named_with_its_module_and_line(tmp_path, name):
    module, exporter, opset, lacked, place = NETS[name]
    words = refused(exported(module, tmp_path, exporter, opset))
    assert [fact for fact in (*lacked, *place) if fact not in words] == []


def test_without_a_probe_table_the_nodes_say_where_they_come_from(tmp_path):
    path = exported(Net(torch.float64), tmp_path)
    (path.parent / PROBES).unlink()
    assert "It comes from inner.0, 2 places." in refused(path)


def changed(tmp_path, blocks_files, change):
    model = onnx.load(blocks_files["dynamo"] / MODEL)
    change(model)
    onnx.save(model, tmp_path / MODEL)
    (tmp_path / PROBES).write_bytes((blocks_files["dynamo"] / PROBES).read_bytes())
    return tmp_path / MODEL


def renamed(model, domain=""):
    gelu = next(n for n in model.graph.node if n.op_type in {"Gelu", "Erf"})
    gelu.op_type, gelu.domain = "NoSuchOne", domain
    if domain:
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))


def newer_format(model):
    model.ir_version = 99


ANEW = "Another exporter or opset, or a rewrite"
CHANGES = {
    "unknown": (
        renamed,
        ["opset 18 has no operator NoSuchOne. It comes from ff.1", ANEW],
    ),
    "domain": (
        partial(renamed, domain="mine"),
        ["it knows no operator mine:NoSuchOne. It comes from ff.1", ANEW],
    ),
    "format": (
        newer_format,
        ["it is of IR version 99, and the newest that this runtime takes is ",
         "`ir_version` = "],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_ort_does_not_know_is_a_sentence(tmp_path, blocks_files, name):
    change, said = CHANGES[name]
    words = refused(changed(tmp_path, blocks_files, change))
    assert [fact for fact in said if fact not in words] == []


def test_an_opset_that_is_too_new_is_said_with_the_newest(tmp_path, blocks_files):
    def newer(model):
        model.opset_import[0].version = 99

    words = refused(changed(tmp_path, blocks_files, newer))

    assert "it is of opset 99, and the newest that this runtime takes is " in words
    newest = int(words.partition("`opset` = ")[2].partition(" ")[0])
    path = exported(Net(torch.float32), tmp_path, opset=min(newest, 25))
    with open_session(path, DEVICE, ["y"]) as session:
        assert session.ran.version == ort.__version__


OTHER_OPSETS = {
    "operator": ("11", "y = HardSwish (x)", "HardSwish is of opset 14 or newer"),
    "attribute": (
        "11",
        "s = Constant <value = int64[2] {-1, 8}> () y = Reshape <allowzero = 1> (x, s)",
        "Reshape with the attribute allowzero is of opset 14 or newer",
    ),
    "inputs": (
        "17",
        "a = Constant <value = int64[1] {1}> () y = ReduceMax (x, a)",
        "ReduceMax with 2 inputs is of opset 18 or newer",
    ),
    "older": (
        "18",
        "y = ReduceMean <axes = [1]> (x)",
        "ReduceMean with the attribute axes is of opset 17 or older",
    ),
}


@pytest.mark.parametrize("name", OTHER_OPSETS)
def test_a_node_of_another_opset_than_its_files_is_named_with_both(tmp_path, name):
    opset, nodes, said = OTHER_OPSETS[name]
    graph = f"g (float[b, 8] x) => (float[b, n] y) {{ {nodes} }}"
    text = f'<ir_version: 9, opset_import: ["" : {opset}]> {graph}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / MODEL)
    words = refused(tmp_path / MODEL)
    assert f"it says that it is of opset {opset}, and its node {said}" in words
