"""Each value of a foreign model is lined up with the right value of PyTorch's."""

import warnings

import onnx
import pytest
import torch
from torch import nn

from harness.core.case import ExportSettings
from harness.core.probes import Probe, ValueKind
from harness.plugins.foreign.files.lineup import (
    NAMES,
    OUTPUTS,
    SCOPES,
    WEIGHTS,
    line_up,
    paths_of_scopes,
)
from harness.plugins.foreign.files.pairing import paired
from harness.runtimes.mnn.given import contracted
from harness.runtimes.pytorch.translation import translate_once
from tests.plugin import others
from tests.unit import nets

EXAMPLE = (torch.arange(8.0).reshape(2, 4) / 7,)
COMPONENT = nets.component("small", {"x": (2, 4)}, ("y",))
CLOSED = ExportSettings(dynamic=())


class Small(nn.Module):
    """Two layers, and an activation that has no weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.act = nn.SiLU()
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Wrapped(nn.Module):
    """The same behind somebody's wrapper."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Placed(nn.Module):
    """A table of positions, whole, is broadcast over a batch."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.places = nn.Embedding(1, 5)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.first(x) + self.places(torch.arange(1)))


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return Small().eval().requires_grad_(requires_grad=False)


def export(module, path, *, dynamo):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            EXAMPLE,
            str(path),
            dynamo=dynamo,
            verbose=False,
            input_names=["x"],
            output_names=["y"],
            opset_version=18,
        )
    return path


def network(module, store, settings=CLOSED):
    return nets.traced(module, COMPONENT, settings, EXAMPLE, store)


def lined_up(path, module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return line_up(path, network(module, path.parent / "store"), {"y": "y"})


def carried(lineup):
    return {p.name for p in lineup.probes if p.kind is ValueKind.COMPUTE and p.onnx}


def test_what_dynamo_exported_is_lined_up_by_names(module, tmp_path):
    found = lined_up(export(module, tmp_path / "a.onnx", dynamo=True), module)
    assert (found.by, found.share) == (NAMES, 1.0)


def test_a_wrapper_of_others_is_looked_through(module, tmp_path):
    path = export(Wrapped(module), tmp_path / "a.onnx", dynamo=False)
    found = lined_up(path, module)
    assert (found.by, carried(found)) == (SCOPES, {"first", "act", "last"})


def test_without_names_weights_say_which_module_it_is(module, tmp_path):
    path = export(module, tmp_path / "a.onnx", dynamo=False)
    found = lined_up(others.nameless(path, tmp_path / "b.onnx"), module)
    assert (found.by, carried(found)) == (WEIGHTS, {"first", "last"})


@pytest.mark.parametrize("batch", [2, 1])
def test_a_sum_with_a_table_is_not_the_table(tmp_path, monkeypatch, batch):
    """One is broadcast to the other; of a batch of one they have the same shape."""
    monkeypatch.setattr(f"{__name__}.EXAMPLE", (EXAMPLE[0][:batch],))
    torch.manual_seed(0)
    placed = Placed().eval().requires_grad_(requires_grad=False)
    path = export(placed, tmp_path / "a.onnx", dynamo=False)
    found = lined_up(others.nameless(path, tmp_path / "b.onnx"), placed)

    assert (found.by, carried(found)) == (WEIGHTS, {"first", "last"})
    made = {probe.name: probe.parents for probe in found.probes}
    assert set(made["last"]) == {"first", "places"}


@pytest.mark.parametrize(
    ("theirs", "fits"),
    [([2, 5], True), ([5, 2], False), ([1, 5], False), ([5], False), (["n", 5], True)],
)
def test_a_value_of_another_shape_is_paired_with_nothing(theirs, fits):
    probe = Probe(name="a", position=0, kind=ValueKind.COMPUTE, onnx="v")
    (found,) = paired([probe], {"a": (2, 5)}, {"v": theirs})
    assert bool(found.onnx) == fits


def test_half_of_a_modules_weights_are_not_the_module(module, tmp_path):
    """A bias that is another's: the product alone is not what the module returns."""
    path = export(module, tmp_path / "a.onnx", dynamo=False)
    bare = others.nameless(path, tmp_path / "b.onnx")
    model = onnx.load(bare)
    for tensor in model.graph.initializer:
        if list(tensor.dims) == [5]:
            value = onnx.numpy_helper.to_array(tensor) + 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    onnx.save(model, bare)
    assert carried(lined_up(bare, module)) == {"last"}


def test_with_nothing_to_go_by_outputs_are_left(module, tmp_path):
    path = export(module, tmp_path / "a.onnx", dynamo=False)
    bare = others.nameless(path, tmp_path / "b.onnx")
    found = lined_up(others.rounded(bare, tmp_path / "c.onnx"), module)
    assert (found.by, found.share) == (OUTPUTS, 0.0)


def test_prefixes_of_both_sides_are_looked_through():
    ours = {"network/a": "network.a", "network/b/c": "network.b.c"}
    assert paths_of_scopes(ours, {"unet/a", "unet/b/c", "unet/d"}) == {
        "unet/a": "network.a",
        "unet/b/c": "network.b.c",
    }


def test_what_mnns_converter_put_between_two_values_is_looked_through():
    graph = {"/a/Conv": ["x"], "Reshape1": ["/a/Conv"], "/b/Mul": ["Reshape1", "k"]}
    assert contracted(graph, ["/b/Mul"]) == {
        "/a/Conv": ["x"],
        "/b/Mul": ["/a/Conv", "k"],
    }


def test_a_graph_without_scopes_is_left_as_it_is():
    graph = {"conv2d": ["x"], "silu": ["conv2d"]}
    assert contracted(graph, ["silu"]) == graph


class Tied(nn.Module):
    """Weights, one of them tied, a buffer that is saved and one that is not."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("lost", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return self.norm(self.second(nn.functional.silu(self.first(x)))) + self.lost


@pytest.fixture
def exports(monkeypatch):
    """Counts the exporter's runs."""
    export, ran = torch.onnx.export, []

    def counted(*args, **options):
        ran.append(args[0])
        return export(*args, **options)

    monkeypatch.setattr(torch.onnx, "export", counted)
    return ran


@pytest.fixture
def tied():
    torch.manual_seed(0)
    return Tied().eval().requires_grad_(requires_grad=False)


def translated(store, module, settings=CLOSED):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return translate_once(network(module, store, settings))


def ran(made, *, double=False):
    values: dict[str, torch.Tensor] = {}
    outputs = made.program.run(EXAMPLE, values.__setitem__, double=double)
    return [*outputs, *values.values()]


def test_the_second_time_nothing_is_exported_and_every_bit_is_the_same(
    tied, exports, tmp_path
):
    first, second = translated(tmp_path, tied), translated(tmp_path, tied)

    assert len(exports) == 1
    assert second.program.probes == first.program.probes
    assert second.outputs == first.outputs
    assert set(second.outputs.values()) == {"y"}
    for double in (False, True):
        pairs = zip(ran(first, double=double), ran(second, double=double), strict=True)
        assert all(torch.equal(one, two) for one, two in pairs)


def test_other_settings_are_another_translation(tied, exports, tmp_path):
    translated(tmp_path, tied)
    translated(tmp_path, tied, ExportSettings(dynamic=(), opset=20))

    assert len(exports) == 2


def test_weights_are_not_stored_and_the_module_gives_them(tied, tmp_path):
    tied.first = nn.Linear(4, 4, bias=False)
    translated(tmp_path, tied)
    tied.first.weight.data.fill_(3.0)

    assert tied(*EXAMPLE).equal(ran(translated(tmp_path, tied))[0])
