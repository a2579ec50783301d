"""A graph's weights and attributes are compared with the module's, without a run."""

import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import Probe, ValueKind, load_probes
from harness.core.record import OUTPUTS, CaseRecord
from harness.engine.export_files import MODEL, PROBES, WEIGHTS
from harness.plugins.weights.causes import Lora, dropped, lora_words
from harness.plugins.weights.check import check_graph
from harness.plugins.weights.judged import graph_finding
from harness.plugins.weights.kinds import difference
from harness.runtimes.pytorch.program import applied_parameters
from tests.unit import nets

CONV, QUERY, KEY = "conv_in.weight", "attention.to_q.weight", "attention.to_k.weight"
FF = "ff.0.weight"


@pytest.fixture(scope="module", params=["dynamo", "torchscript"])
def exported(request, tmp_path_factory):
    """A network and a folder with its export; biases are not 0, nor scales 1."""
    module = nets.Blocks()
    torch.manual_seed(1)
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    folder = tmp_path_factory.mktemp(request.param)
    opset = 18 if request.param == "dynamo" else 17
    nets.export(module, nets.BLOCKS, folder, request.param, opset)
    return module, folder


def constant_of(model, module, name):
    """The graph's constant with a parameter's bytes, and whether it is transposed."""
    wanted = dict(module.named_parameters())[name].detach().numpy()
    for tensor in model.graph.initializer:
        held = numpy_helper.to_array(tensor)
        for turned in (False, True):
            one = wanted.T if turned else wanted
            if np.array_equal(held.squeeze(), one.squeeze()):
                return tensor, turned
    raise KeyError(name)


def changed(exported, folder, **changes):
    """Check a copy of the graph with other weights."""
    module, right = exported
    model = onnx.load(right / MODEL)
    found = [
        (constant_of(model, module, name), change) for name, change in changes.items()
    ]
    for (tensor, turned), change in found:
        value = numpy_helper.to_array(tensor)
        new = np.asarray(change((value.T if turned else value).copy()), np.float32)
        stored = np.ascontiguousarray(new.T if turned else new).reshape(value.shape)
        tensor.CopyFrom(numpy_helper.from_array(stored, tensor.name))
    onnx.save(model, folder / MODEL)
    shutil.copy(right / PROBES, folder)
    return check_graph(module, load_probes(folder / PROBES), folder / MODEL)


class Seams(nn.Module):
    """Convolutions that pad with what is not zero, and one behind a padding."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")
        self.two = nn.Conv2d(4, 4, 3, padding="same", padding_mode="circular")
        self.three = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        padded = functional.pad(self.two(self.one(x)), (1, 1, 1, 1), mode="reflect")
        return self.three(padded)


class Normed(nn.Module):
    """Layers whose weight is computed from a direction and a length."""

    def __init__(self):
        super().__init__()
        self.old = nn.utils.weight_norm(nn.Conv2d(4, 4, 3))
        self.new = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3))

    def forward(self, x):
        return self.new(self.old(x))


class Recurrent(nn.Module):
    """A recurrent layer, whose gates ONNX has in another order."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        return self.gru(x.flatten(1, 2))[0]


class Squashed(nn.Module):
    """A GELU behind another operator with a Tanh."""

    def __init__(self):
        super().__init__()
        self.linear, self.gelu = nn.Linear(8, 8), nn.GELU()

    def forward(self, x):
        return self.gelu(torch.tanh(self.linear(x)))


class Tokens(nn.Module):
    """A table of tokens, and a last layer of the same size, as of a language model."""

    def __init__(self):
        super().__init__()
        self.embed, self.mid = nn.Embedding(40, 8), nn.Linear(8, 8)
        self.lm_head = nn.Linear(8, 40, bias=False)

    def forward(self, x):
        ids = (9 * x.abs()).long().clamp(max=39)
        return self.lm_head(torch.tanh(self.mid(self.embed(ids))))


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("other", ["embed", "lm_head"])
@pytest.mark.filterwarnings("ignore")
def test_a_weight_that_is_tied_in_the_file_alone_is_named(exporter, other, tmp_path):
    torch.manual_seed(1)
    module = Tokens().eval()
    component = nets.component("net", {"x": ("batch", 6)})
    opset = 18 if exporter == "dynamo" else 17
    nets.export(module, component, tmp_path, exporter, opset)
    model = onnx.load(tmp_path / MODEL)
    names = {"embed": "embed.weight", "lm_head": "lm_head.weight"}
    (here, turned), (there, also) = (
        constant_of(model, module, names[name])
        for name in (other, ({*names} - {other}).pop())
    )
    value = numpy_helper.to_array(there)
    value = np.ascontiguousarray(value.T if turned != also else value)
    here.CopyFrom(numpy_helper.from_array(value, here.name))
    onnx.save(model, tmp_path / MODEL)

    checked = check_graph(module, load_probes(tmp_path / PROBES), tmp_path / MODEL)

    (owner,) = {*names} - {other}
    words = (
        f"it is {owner}.weight, which is in its own place too, as if the two were tied"
    )
    assert [(w["name"], w["words"]) for w in checked["weights"]] == [
        (f"{other}.weight", words)
    ]


class Adapted(nn.Module):
    """Layers, two of which a LoRA changes."""

    def __init__(self, scale=0.0):
        super().__init__()
        torch.manual_seed(1)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)
        for layer in (self.query, self.key):
            low = torch.randn(8, 1) @ torch.randn(1, 8)
            layer.weight.data += scale * low / 4

    def forward(self, x):
        return self.out(torch.tanh(self.query(x)) * self.key(x))


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (0.0, "are all that the LoRA style changes, and the graph has them without it"),
        (0.4, "and the graph has it at a scale of 0.4, not 0.8"),
        (0.8, ""),
    ],
)
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.filterwarnings("ignore")
def test_weights_of_another_scale_of_a_lora_are_told(exporter, theirs, said, tmp_path):
    component = nets.component("net", {"x": ("batch", 6, 8)})
    opset = 18 if exporter == "dynamo" else 17
    nets.export(Adapted(theirs).eval(), component, tmp_path, exporter, opset)
    lora = Lora(name="style", scale=0.8, without=Adapted)
    probes = load_probes(tmp_path / PROBES)
    checked = check_graph(Adapted(0.8).eval(), probes, tmp_path / MODEL, lora)
    assert said in checked["lora"]
    assert bool(checked["lora"]) is bool(said)


def test_weights_that_a_lora_does_not_explain_are_not_told_of_it():
    module = Adapted(0.8)
    lora = Lora(name="style", scale=0.8, without=Adapted)
    held = {
        "query.weight": (module.query.weight.detach().numpy() + 0.1,),
        "key.weight": (Adapted().key.weight.detach().numpy(),),
    }
    assert lora_words(lora, module, held) == ""


@pytest.mark.parametrize(
    ("found", "ran", "lost"),
    [
        ({"a.weight": True, "b.weight": False, "b.bias": False}, "b", ["b"]),
        ({"a.weight": False, "b.weight": False}, "b", []),  # a is elsewhere too
        ({"a.weight": True, "b.weight": False, "b.bias": True}, "b", []),
        ({"a.weight": True, "b.weight": False}, "a", []),  # it never ran
    ],
)
def test_a_module_is_dropped_where_all_other_weights_are_pytorchs(found, ran, lost):
    probe = Probe(name="c", position=0, kind=ValueKind.COMPUTE, op="Conv2d", module=ran)
    assert dropped(found, [probe], exact=True) == lost
    assert dropped(found, [replace(probe, onnx="c")], exact=True) == []
    assert dropped(found, [probe], exact=False) == []


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("kind", [Seams, Normed, Recurrent, Squashed])
@pytest.mark.filterwarnings("ignore")
def test_a_faithful_export_has_no_finding(kind, exporter, tmp_path):
    torch.manual_seed(1)
    module = kind().eval()
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    component = nets.component("net", {"x": ("batch", 4, 8, 8)})
    opset = 18 if exporter == "dynamo" else 17
    nets.export(module, component, tmp_path, exporter, opset)

    checked = check_graph(module, load_probes(tmp_path / PROBES), tmp_path / MODEL)

    assert checked["attributes"] == []
    assert checked["weights"] == []


def told(checked, *, foreign=False, failing=False):
    record = CaseRecord(
        case="net/onnxruntime/fp32",
        component="net",
        backend="onnxruntime",
        variant="fp32",
        asked={},
        graphs=(checked,),
        foreign={"by": "names"} if foreign else None,
    )
    found = graph_finding(record, OUTPUTS, failing=failing)
    return found and found[:2]


def test_an_export_holds_every_weight(exported):
    module, folder = exported
    checked = check_graph(module, load_probes(folder / PROBES), folder / MODEL)
    assert checked["equal"] == checked["tensors"] == 16
    assert checked["attributes"] == []
    assert told(checked) is None


def zeroed(weight):
    weight[3] = 0
    return weight


def one_scaled(weight):
    weight[3] *= 1.25
    return weight


def in_bits(weight, most=127):
    scale = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True) / most
    return np.round(weight / scale) * scale


def to_bfloat16(weight):
    return torch.tensor(weight).bfloat16().float().numpy()


def one_off(weight):
    weight.flat[7] += 1e-4
    return weight


def noisy(weight):
    noise = np.random.default_rng(0).standard_normal(weight.shape)
    return weight * (1 + 1e-3 * noise)


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (CONV, lambda w: w.astype(np.float16), "PyTorch's, rounded to float16"),
        (QUERY, lambda w: w.astype(np.float16), "PyTorch's, rounded to float16"),
        (CONV, to_bfloat16, "PyTorch's, rounded to bfloat16"),
        (CONV, in_bits, "rounded to 8 bits, one scale a channel"),
        (CONV, zeroed, "output channel 3 of 8 is 0, the others agree"),
        (CONV, one_scaled, "output channel 3 of 8 is 1.25 times PyTorch's"),
        (FF, one_scaled, "output channel 3 of 16 is 1.25 times PyTorch's"),
        (CONV, one_off, "1 of its 288 numbers differ, [0, 0, 2, 1] most"),
        (CONV, noisy, "it differs by "),
        (QUERY, noisy, "it differs by "),
    ],
)
def test_a_weight_that_no_rewrite_makes_is_named(  # noqa: PLR0917  # fixtures
    exported, tmp_path, name, change, words, foreign
):
    outcome, said = told(changed(exported, tmp_path, **{name: change}), foreign=foreign)
    assert outcome is Outcome.WEIGHTS
    assert name in said
    assert words in said


WILD = {
    "nan": (np.nan, "numbers is NaN, [0, 0, 0, 0]"),
    "infinite": (-np.inf, "numbers is infinite, [0, 0, 0, 0]"),
    "huge": (1e30, "1 of its 288 numbers differ, [0, 0, 0, 0] most: 1e+30"),
}


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("number", WILD)
def test_one_wild_number_explains_no_other(exported, tmp_path, number, foreign):
    wild, words = WILD[number]

    def one(weight):
        weight.flat[0] = wild
        return weight

    found, reason = told(changed(exported, tmp_path, **{CONV: one}), foreign=foreign)

    assert found is Outcome.WEIGHTS
    assert words in reason
    assert "times PyTorch" not in reason


CLAIMS = ("times PyTorch's", "rounded to", "own factor", "transposed", "flipped")


CHANGES = {
    "scaled": lambda w: w * 1.5,
    "float16": lambda w: w.astype(np.float16),
    "bits": in_bits,
    "bfloat16": to_bfloat16,
    "flipped": lambda w: w[..., ::-1, ::-1],
    "channels": lambda w: w * np.linspace(1, 2, len(w))[:, None, None, None],
}


@pytest.mark.parametrize("size", [1e30, 1e3, 1.0])
@pytest.mark.parametrize("name", CHANGES)
def test_what_does_not_explain_a_tenth_of_a_weight_is_not_said(name, size):
    expected = np.random.default_rng(1).normal(size=(32, 16, 3, 3)).astype(np.float32)
    actual = np.array(CHANGES[name](expected), np.float32)
    at = np.random.default_rng(5).choice(actual.size, actual.size // 10, replace=False)
    actual.flat[at] = size * np.random.default_rng(6).normal(size=len(at))
    words = difference(expected, actual).words
    assert not any(claim in words for claim in CLAIMS)


def test_a_wild_row_does_not_hide_what_is_wrong_with_the_others():
    expected = np.random.default_rng(1).normal(size=(32, 144)).astype(np.float32)
    expected[0] *= 1e6
    actual = expected * np.float32(2)
    actual[1:] = expected[1:] + np.float32(0.1)
    assert "times PyTorch's" not in difference(expected, actual).words


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (CONV, lambda w: w * 1.01, "it is 1.01 times PyTorch's"),
        (QUERY, np.transpose, "it is transposed"),
        (FF, np.zeros_like, "it is 0 everywhere"),
        ("conv_in.bias", lambda b: np.roll(b, 1), "it is shifted by one along axis 0"),
        (
            CONV,
            lambda w: w * np.linspace(1, 2, 8)[:, None, None, None],
            "each output channel has its own factor, 1 to 2",
        ),
    ],
)
def test_what_algebra_may_do_counts_in_an_export(
    exported, tmp_path, name, change, words
):
    checked = changed(exported, tmp_path, **{name: change})
    for foreign, failing in ((False, False), (True, True)):
        _, said = told(checked, foreign=foreign, failing=failing)
        assert f"weight {name} of the graph is not PyTorch's: {words}" in said


@pytest.mark.parametrize("name", [QUERY, FF])
def test_a_factor_that_moved_in_a_file_of_others_is_none(exported, tmp_path, name):
    checked = changed(exported, tmp_path, **{name: lambda w: w * 0.5})
    assert told(checked, foreign=True) is None


def test_last_bits_count_in_an_export_and_not_in_a_file_of_others(exported, tmp_path):
    checked = changed(exported, tmp_path, **{CONV: lambda w: np.nextafter(w, 9)})
    assert "its last bits differ" in told(checked)[1]
    assert told(checked, foreign=True, failing=True) is None


def test_two_weights_in_each_others_place_are_named_together(exported, tmp_path):
    module, _ = exported
    of = dict(module.named_parameters())
    checked = changed(
        exported,
        tmp_path,
        **{
            QUERY: lambda _: of[KEY].detach().numpy(),
            KEY: lambda _: of[QUERY].detach().numpy(),
        },
    )

    _, said = told(checked)

    assert said == f"weights are exchanged in the graph: {KEY} and {QUERY}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (noisy, "of another training step: 15 of 16 tensors differ, by"),
        (
            lambda w: np.random.default_rng(3).standard_normal(w.shape),
            "of another checkpoint: 15 of 16 tensors differ, by",
        ),
    ],
)
@pytest.mark.parametrize("foreign", [False, True])
def test_another_checkpoint_is_one_sentence(exported, tmp_path, change, words, foreign):
    module, _ = exported
    names = [name for name, _ in module.named_parameters() if name != "kinds.weight"]
    checked = changed(exported, tmp_path, **dict.fromkeys(names, change))
    _, said = told(checked, foreign=foreign, failing=foreign)
    assert words in said
    assert "first conv_in.weight" in said


def test_another_epsilon_is_a_finding_of_its_own(exported, tmp_path):
    module, right = exported
    model = onnx.load(right / MODEL)
    kinds = ("InstanceNormalization", "GroupNormalization")
    node = next(node for node in model.graph.node if node.op_type in kinds)
    next(a for a in node.attribute if a.name == "epsilon").f = 1e-6
    onnx.save(model, tmp_path / MODEL)

    checked = check_graph(module, load_probes(right / PROBES), tmp_path / MODEL)

    for foreign in (False, True):
        outcome, said = told(checked, foreign=foreign)
        assert outcome is Outcome.ATTRIBUTES
        assert said.startswith("epsilon is 1e-06 in the graph, 1e-05 in PyTorch, at")


def test_weights_that_are_cut_short_are_refused_by_name(tmp_path):
    module = nets.Blocks()
    nets.export(module, nets.BLOCKS, tmp_path, external_data=True)
    file = tmp_path / WEIGHTS
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(StageError, match=r"weight .* cannot be read .* cut short"):
        check_graph(module, load_probes(tmp_path / PROBES), tmp_path / MODEL)


class Folded(nn.Module):
    """A scale that an export folds, a weight that is read, and one that is not."""

    def __init__(self, fold):
        super().__init__()
        self.fold = fold
        self.scale = nn.Parameter(torch.zeros(16))
        self.used = nn.Linear(16, 16)
        self.unused = nn.Linear(16, 16)
        self.register_buffer("turn", torch.randn(16, 16))

    def forward(self, x):
        return (self.used(x) * self.fold(self.scale)) @ self.turn


@pytest.mark.parametrize(
    "fold",
    [
        pytest.param(lambda w: 1 + w, id="one-more"),
        pytest.param(torch.exp, id="exponential"),
        pytest.param(lambda w: 1 / (w.exp() + 1e-9), id="several-operators"),
    ],
)
@pytest.mark.parametrize("trained", [False, True])
def test_a_weight_that_the_export_folded_is_no_other(tmp_path, fold, trained):
    module = Folded(fold)
    if trained:
        nn.init.normal_(module.scale)
    nets.export(module, nets.component("net", {"x": ("batch", 16)}), tmp_path)
    checked = check_graph(module, load_probes(tmp_path / PROBES), tmp_path / MODEL)
    assert checked["weights"] == []
    assert "scale" in checked["elsewhere"] or not trained


def test_a_normalisation_in_a_convolution_without_a_bias_differs_in_no_weight(tmp_path):
    conv, norm = nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4)
    for value in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(value)
    module = nn.Sequential(conv, norm, nn.ReLU()).eval()
    about = {"input": ("batch", 8, 3, 3)}
    nets.export(module, nets.component("net", about), tmp_path)

    checked = check_graph(module, load_probes(tmp_path / PROBES), tmp_path / MODEL)

    assert checked["weights"] == []


def test_a_weight_that_is_applied_in_a_view_is_still_compared(tmp_path):
    module = Folded(lambda w: w.reshape(1, 16))
    nn.init.normal_(module.scale)
    nets.export(module, nets.component("net", {"x": ("batch", 16)}), tmp_path)
    probes = load_probes(tmp_path / PROBES)
    module.scale.data[3] += 1
    module.used.weight.data[3] += 1

    checked = check_graph(module, probes, tmp_path / MODEL)

    assert {one["name"] for one in checked["weights"]} >= {"used.weight"}
    applied = applied_parameters(probes)
    assert applied is not None
    assert "scale" in applied


class FromOne(nn.Module):
    """A norm that multiplies by one more than its weight, as Gemma's does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * (1.0 + self.weight)


@pytest.mark.parametrize("weight", [0.0, 0.25])
@pytest.mark.parametrize(("added", "differing"), [(1.0, 0), (1.5, 1)])
def test_what_a_part_computes_from_its_weight_is_no_other(
    tmp_path, weight, added, differing
):
    module = nn.Sequential(FromOne())
    nn.init.constant_(module[0].weight, weight)
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])
    node = onnx.helper.make_node("Mul", ["x", "0.weight"], ["y"])
    held = numpy_helper.from_array(np.full(4, weight + added, np.float32), "0.weight")
    graph = onnx.helper.make_graph([node], "g", [given], [made], [held])
    onnx.save(onnx.helper.make_model(graph), tmp_path / MODEL)
    assert check_graph(module, (), tmp_path / MODEL)["differing"] == differing


def test_a_number_without_axes_differs_from_one_with_an_axis_in_words():
    found = difference(np.array(0.5, np.float32), np.array([0.25], np.float32))
    assert found.words == "it is 0.5 times PyTorch's"
