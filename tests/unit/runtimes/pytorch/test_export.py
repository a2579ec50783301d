"""An exported graph is as requested, and has lost nothing."""

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnxscript.rewriter.pattern import Pattern
from onnxscript.rewriter.rules.common import slice_split_rule
from torch import nn

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import ValueKind, load_probes
from harness.engine.export_files import MODEL, PROBES, WEIGHTS
from harness.runtimes.pytorch import export as exporting
from harness.runtimes.pytorch.weights import lost_weights, weights_due
from tests.unit import nets

EXPORTERS = ("dynamo", "torchscript")
OPSETS = [
    *(("torchscript", opset) for opset in (14, 17, 20, 23)),
    *(("dynamo", opset) for opset in (18, 20, 25)),
]
PLAIN = nets.component("plain", {"rows": ("batch", 4)})
ROWS = torch.rand(2, 4)
EXAMPLE = tuple(torch.tensor(value) for value in nets.feeds(nets.BLOCKS).values())


def opset_of(folder):
    model = onnx.load(folder / MODEL, load_external_data=False)
    return next(entry.version for entry in model.opset_import if not entry.domain)


def run(folder, feeds):
    return nets.by_onnxruntime(folder / MODEL, feeds, optimised=False)


def check_outputs(module, folder, feeds):
    with torch.no_grad():
        expected = module(*(torch.tensor(value) for value in feeds.values()))
    for one, two in zip(expected, run(folder, feeds).values(), strict=True):
        np.testing.assert_allclose(two, one.numpy(), rtol=1e-4, atol=1e-5)


def refused(module, component, folder, **settings) -> StageError:
    folder.mkdir(exist_ok=True)
    with pytest.raises(StageError) as caught:
        nets.export(module, component, folder, **settings)
    return caught.value


@pytest.mark.parametrize(("exporter", "opset"), OPSETS)
def test_an_export_has_the_opset_that_was_asked(tmp_path, exporter, opset):
    nets.export(nets.Blocks(), nets.BLOCKS, tmp_path, exporter, opset)
    assert opset_of(tmp_path) == opset
    onnx.checker.check_model(str(tmp_path / MODEL), full_check=True)
    if opset < 23:  # newer than this onnxruntime may know
        check_outputs(nets.Blocks(), tmp_path, nets.feeds(nets.BLOCKS))


@pytest.mark.parametrize(
    ("exporter", "opset", "takes"),
    [
        ("torchscript", 24, "14 to 23"),
        ("dynamo", 14, "18 to 25"),
        ("dynamo", 26, "18 to 25"),
    ],
)
def test_an_opset_that_cannot_be_written_is_refused(tmp_path, exporter, opset, takes):
    error = refused(
        nets.Blocks(), nets.BLOCKS, tmp_path, exporter=exporter, opset=opset
    )
    assert error.outcome is Outcome.EXPORT
    assert f"cannot write opset {opset}" in str(error)
    assert f"takes {takes}" in str(error)
    assert "parity.toml" in str(error)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_small_graph_is_one_file_with_the_promised_names(blocks_files, exporter):
    folder = blocks_files[exporter]
    graph = onnx.load(folder / MODEL).graph
    assert [value.name for value in graph.input] == ["image", "kind"]
    assert [value.name for value in graph.output] == ["map", "pooled"]
    assert {path.name for path in folder.iterdir()} == {MODEL, PROBES}


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 1},
        {"batch": 2},
        {"batch": 3},
        {"height": 5, "width": 14},
        {"batch": 1, "height": 1, "width": 1},
    ],
    ids=str,
)
def test_open_axes_take_other_sizes(blocks_files, exporter, changes):
    feeds = nets.feeds(nets.BLOCKS, **changes)
    check_outputs(nets.Blocks(), blocks_files[exporter], feeds)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_axes_that_are_not_open_are_fixed(tmp_path, exporter):
    nets.export(nets.Blocks(), nets.BLOCKS, tmp_path, exporter, dynamic=("batch",))
    graph = onnx.load(tmp_path / MODEL).graph
    image = graph.input[0].type.tensor_type.shape.dim
    assert image[0].dim_param
    assert [dim.dim_value for dim in image[1:]] == [4, 6, 10]
    check_outputs(nets.Blocks(), tmp_path, nets.feeds(nets.BLOCKS, batch=3))
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT|Got invalid dimensions"):
        run(tmp_path, nets.feeds(nets.BLOCKS, height=8))


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "too-large"])
def test_weights_lie_beside_the_graph(tmp_path, exporter, asked, monkeypatch):
    """When the suite asks, and when one message cannot hold the graph."""
    if not asked:
        monkeypatch.setattr(exporting, "PROTO_LIMIT_BYTES", 4096)
    nets.export(nets.Blocks(), nets.BLOCKS, tmp_path, exporter, external_data=asked)
    graph = onnx.load(tmp_path / MODEL, load_external_data=False).graph
    outside = [t for t in graph.initializer if t.data_location == t.EXTERNAL]
    places = {e.value for t in outside for e in t.external_data if e.key == "location"}

    assert {p.name for p in tmp_path.iterdir()} == {MODEL, PROBES, WEIGHTS}
    assert places == {WEIGHTS}
    assert not any(len(t.raw_data) > 1024 for t in graph.initializer)
    check_outputs(nets.Blocks(), tmp_path, nets.feeds(nets.BLOCKS))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_what_computes_is_found_in_the_graph(blocks_files, exporter):
    folder = blocks_files[exporter]
    probes = load_probes(folder / PROBES)
    names = {n for node in onnx.load(folder / MODEL).graph.node for n in node.output}
    computing = [p for p in probes if p.kind is ValueKind.COMPUTE]
    assert [p.name for p in computing if p.onnx not in names] == []
    assert len(computing) > 8
    assert {"conv_in", "attention.to_out", "ff.1"} <= {p.module for p in computing}


class Spare(nn.Module):
    """Has weights that no output hangs on, in three ways."""

    def __init__(self):
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.never = nn.Linear(4, 5)
        self.pooler = nn.Linear(4, 6)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 7))
        self.eval()

    def forward(self, rows):
        rows = self.used(rows)
        self.pooler(rows)
        return self.normed(rows)


class Normed(nn.Module):
    """Both exporters multiply the normalisation into the convolution."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 4, 1)
        self.conv = nn.Conv2d(4, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.eval()

    def forward(self, image):
        return self.norm(self.conv(torch.relu(self.first(image))))


NORMED = nets.component("normed", {"image": ("batch", 4, "height", "width")})


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    ("module", "component"),
    [
        pytest.param(Spare(), PLAIN, id="unused-weights"),
        pytest.param(Normed(), NORMED, id="folded-batch-normalisation"),
    ],
)
def test_weights_that_no_output_needs_may_go(tmp_path, exporter, module, component):
    nets.export(module, component, tmp_path, exporter)
    assert (tmp_path / MODEL).is_file()


class InPlace(nn.Module):
    """Writes into a view, which is a way to an output too."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, rows):
        out = torch.zeros_like(rows)
        out[:, :2] = self.part(rows)[:, :2]
        out += self.scale
        return out


@pytest.mark.parametrize(
    ("module", "example", "due"),
    [
        (Spare(), (ROWS,), {"used.weight", "used.bias", "normed.bias"}),
        (Normed(), (torch.rand(2, 4, 5, 5),), {"first.weight", "first.bias"}),
        (InPlace(), (ROWS,), {"part.weight", "part.bias", "scale"}),
        (
            nets.Blocks(),
            EXAMPLE,
            {name for name, _ in nets.Blocks().named_parameters()},
        ),
    ],
    ids=["unused", "folded", "in-place", "all-in-use"],
)
def test_the_weights_that_are_due_are_applied_for_an_output(module, example, due):
    assert weights_due(module, example) == due


@pytest.mark.parametrize(("scale", "lost"), [(1, ["bias"]), (0, [])])
def test_a_bias_that_is_gone_is_lost_unless_it_adds_nothing(scale, lost):
    layer = nn.Linear(4, 2)
    layer.bias.data.fill_(scale)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]>'
        "g (float[2,4] x) => (float[2,2] y) { y = MatMul(x, w) }"
    )
    turned = layer.weight.detach().numpy().T.copy()
    model.graph.initializer.append(onnx.numpy_helper.from_array(turned, "w"))

    assert lost_weights(layer, (ROWS,), onnx_ir.from_proto(model)) == lost


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("external", [False, True])
def test_a_weight_of_another_bit_is_found(tmp_path, blocks_files, exporter, external):
    folder = blocks_files[exporter]
    if external:
        nets.export(nets.Blocks(), nets.BLOCKS, tmp_path, exporter, external_data=True)
        folder = tmp_path
    model = onnx_ir.load(folder / MODEL)
    module = nets.Blocks()

    assert lost_weights(module, EXAMPLE, model) == []
    with torch.no_grad():
        weight = module.ff[0].weight
        weight[3, 2] = torch.nextafter(weight[3, 2], torch.tensor(9.0))
    assert lost_weights(module, EXAMPLE, model) == ["ff.0.weight"]


def test_a_transposed_matrix_is_still_there(blocks_files):
    """TorchScript transposes what Linear without bias holds."""
    model = onnx_ir.load(blocks_files["torchscript"] / MODEL)
    weight = nets.Blocks().attention.to_q.weight.numpy()
    held = {v.const_value.tobytes() for v in model.graph.initializers.values()}
    assert weight.tobytes() not in held
    assert weight.T.tobytes() in held


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_lost_weight_fails_the_export(tmp_path, exporter, monkeypatch):
    monkeypatch.setattr(exporting, "lost_weights", lambda *_: ["used.weight", "b"])
    error = refused(Spare(), PLAIN, tmp_path, exporter=exporter)
    assert "2 weights of the module are not in the exported file" in str(error)
    assert "used.weight" in str(error)


class Deaf(nn.Module):
    def forward(self, rows, ignored):  # noqa: ARG002  # on purpose
        return rows * 2


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_input_that_is_not_used_is_named(tmp_path, exporter):
    component = nets.component("deaf", {"rows": ("batch", 4), "ignored": ("batch", 4)})
    try:
        nets.export(Deaf().eval(), component, tmp_path, exporter)
    except StageError as error:
        assert "'ignored'" in str(error)  # noqa: PT017  # both ways are right
        assert "does not use" in str(error)  # noqa: PT017
    else:
        graph = onnx.load(tmp_path / MODEL).graph
        assert [value.name for value in graph.input] == ["rows", "ignored"]


def test_the_graph_is_what_the_exporter_writes_by_itself(tmp_path):
    class Halves(nn.Module):
        def forward(self, rows):
            rows = rows.tanh()
            return rows[:, :2] * rows[:, 2:4]

    nets.export(Halves().eval(), PLAIN, tmp_path)
    with exporting.quiet():
        itself = torch.onnx.export(
            *(Halves().eval(), (ROWS,)),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            verbose=False,
        )
    assert itself is not None
    nodes = [node.op_type for node in onnx.load(tmp_path / MODEL).graph.node]

    assert nodes == [node.op_type for node in itself.model.graph]
    assert slice_split_rule.match.__func__ is Pattern.match  # as it was before


class Unsupported(nn.Module):
    def forward(self, rows):
        return torch.linalg.eigvals(rows @ rows.T).real


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_operator_without_a_translation_is_named_with_its_line(tmp_path, exporter):
    error = refused(Unsupported().eval(), PLAIN, tmp_path, exporter=exporter)
    assert "aten::linalg_eig" in str(error).replace("aten.", "aten::")
    assert "opset" not in str(error)
    assert "test_export.py:" in str(error)


def test_a_starred_input_is_one_argument_of_several_tensors(tmp_path):
    class Sum(nn.Module):
        def forward(self, rows, *more):
            return rows + sum(more)

    component = nets.component(
        "sum", dict.fromkeys(("rows", "one", "two"), ("batch", 4))
    )
    nets.export(Sum().eval(), component, tmp_path)
    feeds = nets.feeds(component, batch=3)

    assert np.allclose(run(tmp_path, feeds)["out"], sum(feeds.values()), atol=1e-6)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_warnings_of_the_exporters_stay_inside(tmp_path, exporter, recwarn, capfd):
    nets.export(Spare(), PLAIN, tmp_path, exporter)
    assert [str(warning.message) for warning in recwarn] == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("applied", "due"),
    [
        pytest.param(lambda x, p: x * torch.view_as_complex(p), False, id="complex"),
        pytest.param(
            lambda x, p: x * torch.view_as_complex(p).conj(), False, id="conjugate"
        ),
        pytest.param(lambda x, p: torch.view_as_real(x) * p, True, id="as-it-is"),
    ],
)
def test_a_parameter_is_not_due_where_it_is_read_as_complex_numbers(applied, due):
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.filter = nn.Parameter(torch.randn(3, 5, 2))

        def forward(self, x):
            return applied(torch.fft.rfft(x), self.filter).abs()

    assert weights_due(Filter(), (torch.randn(3, 8),)) == ({"filter"} if due else set())
