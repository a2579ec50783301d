"""Modules that can serve as a reference, and their noise floors."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import ValueKind
from harness.measure.compare import compare
from harness.measure.trace import INDEX, OUTPUT, VALUES, open_trace
from harness.runtimes.pytorch import reference
from harness.runtimes.pytorch.floors import FEW, floor_of, other_convolutions
from harness.runtimes.pytorch.prepare import refuse_not_finite
from harness.runtimes.pytorch.reference import check_reference, record_reference
from harness.runtimes.pytorch.submodules import program_of_module
from tests.unit import nets

ROWS = nets.component("rows", {"rows": (2, 8)})
INPUTS = {"rows": np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)}


class Counting(nn.Module):
    """Remembers how often it was called."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, rows):
        self.calls += 1
        return rows * self.calls


KINDS = {"list": lambda: [torch.zeros(2, 8)], "attribute": lambda: torch.zeros(2, 8)}


class Stream(nn.Module):
    """Keeps what it was given, in one of several ways."""

    def __init__(self, keep, kind="buffer", *, noise=0.0):
        super().__init__()
        self.keep_in, self.noise = (keep,), noise
        if kind == "buffer":
            self.register_buffer("last", torch.zeros(2, 8))
        else:
            self.last = KINDS[kind]()

    def forward(self, rows):
        last = self.last if torch.is_tensor(self.last) else self.last[0]
        out = rows + last + self.noise * torch.randn_like(rows)
        self.keep_in[0](self, rows)
        return out


STREAMS = {
    "written": (lambda s, x: s.last.copy_(x), "buffer", "buffer 'last'"),
    "added": (lambda s, x: s.last.add_(x), "buffer", "buffer 'last'"),
    "replaced": (lambda s, x: setattr(s, "last", x.clone()), "buffer", "buffer 'last'"),
    "rows": (lambda s, x: s.last[1:].copy_(x[1:]), "buffer", "buffer 'last'"),
    "attribute": (
        lambda s, x: setattr(s, "last", x * 1),
        "attribute",
        "attribute 'last'",
    ),
    "list": (lambda s, x: s.last.insert(0, x.clone()), "list", "attribute 'last'"),
}


@pytest.mark.parametrize("way", STREAMS)
@pytest.mark.parametrize("inside", [False, True])
def test_what_a_module_changes_in_forward_is_named(way, inside):
    keep, kind, said = STREAMS[way]
    module = Stream(keep, kind)
    if inside:
        module, said = nn.Sequential(module), said.replace("'last", "'0.last")
    with pytest.raises(StageError, match=f"changes its {said} in forward") as caught:
        check_reference(module.eval(), ROWS, INPUTS)
    assert caught.value.outcome is Outcome.REFERENCE
    assert "make it an input and an output" in str(caught.value)


def test_a_random_module_that_also_keeps_a_buffer_is_called_random():
    module = Stream(STREAMS["written"][0], noise=1.0).eval()
    with pytest.raises(StageError, match="rows is random"):
        check_reference(module, ROWS, INPUTS)


def test_a_buffer_that_moves_no_output_is_no_fault():
    check_reference(Stream(lambda s, _: s.last.zero_().sub_(0.0)).eval(), ROWS, INPUTS)


class Softmax(nn.Module):
    """Masks with the smallest float32, as transformers does."""

    def forward(self, rows):
        keep = torch.ones(8, 8, dtype=torch.bool).tril()[:2]
        mask = torch.where(rows > 0, torch.finfo(torch.float32).min, 0.0)
        return torch.softmax((rows + mask) * keep, -1)


def in_part_in_train_mode():
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout()).eval()
    module[1].train()
    return module


@pytest.mark.parametrize(
    ("module", "said"),
    [
        pytest.param(
            nets.Calling(lambda rows: rows.mul_(2)).eval(),
            "rows changes its input 'rows' in place",
            id="changes-its-input",
        ),
        pytest.param(
            nets.Calling(lambda rows: rows + torch.rand_like(rows)).eval(),
            "rows is random: .*'out' by up to",
            id="random",
        ),
        pytest.param(
            Counting().eval(), "it changes its attribute 'calls'", id="counts"
        ),
        pytest.param(
            nets.Calling(lambda rows: (rows, rows * 2)).eval(),
            "returns 2 tensors, its recipe promises 1: out",
            id="two-outputs",
        ),
        pytest.param(
            in_part_in_train_mode(), r"train mode \(1 and 0 more\)", id="train-mode"
        ),
    ],
)
def test_a_module_that_cannot_be_a_reference_is_refused(module, said):
    with pytest.raises(StageError, match=said) as caught:
        check_reference(module, ROWS, INPUTS)
    assert caught.value.outcome is Outcome.REFERENCE


def test_a_sound_module_gives_its_outputs():
    module = nn.Linear(8, 8).eval()
    with torch.no_grad():
        (out,) = check_reference(module, ROWS, INPUTS)
        assert torch.equal(out, module(torch.from_numpy(INPUTS["rows"])))


def recorded(tmp_path, module, component, inputs, make=nets.by_graph, **which):
    (folder := tmp_path / "trace").mkdir()
    example = tuple(torch.tensor(value) for value in inputs.values())
    program = make(module, example)
    seen = record_reference(
        module, program, component, inputs, folder, device="cpu", **which
    )
    return seen, open_trace(folder), program


@pytest.mark.parametrize("make", [nets.by_graph, program_of_module])
def test_every_computed_value_is_recorded_with_its_noise(tmp_path, make):
    module, inputs = nets.Blocks(), nets.feeds(nets.BLOCKS)
    seen, trace, program = recorded(tmp_path, module, nets.BLOCKS, inputs, make)
    computed = [p.name for p in program.probes if p.kind is ValueKind.COMPUTE]
    seen_outputs = [OUTPUT + "map", OUTPUT + "pooled"]
    kept = [name for name in trace if name in {*computed, *seen_outputs}]
    assert kept == [*seen_outputs, *computed]
    assert seen == {"values": len(trace.places), "rewrite_max_abs": 0.0}
    assert not any(place.is_mask for place in trace.places.values())


def test_noise_is_of_the_size_of_float32(tmp_path):
    module, inputs = nets.Blocks(), nets.feeds(nets.BLOCKS)
    _, trace, program = recorded(tmp_path, module, nets.BLOCKS, inputs)
    for probe in (p for p in program.probes if p.kind is ValueKind.COMPUTE):
        if probe.name in trace and trace[probe.name].dtype == np.float32:
            rms = np.sqrt(np.mean(np.square(trace[probe.name], dtype=np.float64)))
            floor = trace.floor_rms(probe.name)
            # A lookup is exact; all that is computed is not.
            exact = probe.op.startswith("aten.embedding")
            few = trace[probe.name].size < FEW
            assert floor == 0 if exact and not few else 1e-9 < floor / rms < 1e-5, probe


def test_noise_is_the_error_against_the_same_network_in_double(tmp_path):
    module = nn.Conv2d(4, 8, 3).eval()
    component = nets.component("conv", {"image": (2, 4, 6, 6)})
    image = np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float32)
    _, trace, _ = recorded(tmp_path, module, component, {"image": image})
    with torch.no_grad():
        single = module(torch.from_numpy(image)).numpy()
        with other_convolutions():
            other = module(torch.from_numpy(image)).numpy()
        double = module.double()(torch.from_numpy(image).double()).numpy()

    squares = [compare(expected=double, actual=a).rms ** 2 for a in (single, other)]
    floor = trace.floor_rms(OUTPUT + "out")
    assert floor == pytest.approx(floor_of(squares, (), single.size), rel=1e-12)
    assert np.array_equal(trace[OUTPUT + "out"], single)


def test_a_trace_writes_nothing_beside_its_folder(tmp_path, monkeypatch):
    """A store would sweep away what a live process keeps there."""
    beside = []

    @contextmanager
    def seen():
        beside.append(sorted(path.name for path in tmp_path.iterdir()))
        with other_convolutions():
            yield

    monkeypatch.setattr(reference, "other_convolutions", seen)
    module = nn.Conv2d(4, 8, 3).eval()
    component = nets.component("conv", {"image": (2, 4, 6, 6)})
    image = np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float32)

    recorded(tmp_path, module, component, {"image": image})

    assert beside == [["trace"]]
    assert {path.name for path in (tmp_path / "trace").iterdir()} == {INDEX, VALUES}


def test_masks_are_marked_and_do_not_drown_the_noise(tmp_path):
    _, trace, program = recorded(tmp_path, Softmax().eval(), ROWS, INPUTS)
    masks = {name for name in trace if trace.places[name].is_mask}
    ops = {p.op for p in program.probes if p.name in masks}
    assert "aten.add.Tensor" in ops
    assert "aten.softmax.int" not in ops
    assert OUTPUT + "out" not in masks
    for name in masks:
        assert trace.floor_rms(name) < 1e-2


def test_outputs_alone_are_recorded_when_layers_are_not_wanted(tmp_path):
    module, inputs = nets.Blocks(), nets.feeds(nets.BLOCKS)
    seen, trace, _ = recorded(tmp_path, module, nets.BLOCKS, inputs, wanted=())
    assert list(trace) == [OUTPUT + "map", OUTPUT + "pooled"]
    assert seen["values"] == 2
    assert trace.floor_rms(OUTPUT + "map") > 0


def test_what_a_rewrite_changes_is_measured(tmp_path):
    plain = nn.Linear(8, 8).eval()
    rewritten = nn.Linear(8, 8).eval()
    rewritten.load_state_dict(plain.state_dict())
    with torch.no_grad():
        rewritten.bias += 0.25
    rows = (torch.from_numpy(INPUTS["rows"]),)
    program = nets.by_graph(rewritten, rows)

    seen = record_reference(plain, program, ROWS, INPUTS, tmp_path, device="cpu")

    assert seen["rewrite_max_abs"] == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named_before_anything_runs(value):
    wrapper = nn.Module()
    wrapper.network = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    refuse_not_finite(ROWS, wrapper)
    wrapper.network[1].weight.data[0, 1] = value
    with pytest.raises(StageError, match=r"weight 1\.weight holds NaN or") as caught:
        refuse_not_finite(ROWS, wrapper)
    assert "(1 of 8 values). What PyTorch" in str(caught.value)
    assert caught.value.outcome is Outcome.REFERENCE
