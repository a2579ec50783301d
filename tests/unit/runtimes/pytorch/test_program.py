"""The probe of each value of a PyTorch program, and the values themselves."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

from harness.core.probes import ValueKind, load_probes, save_probes
from harness.runtimes.pytorch.program import own_path
from harness.runtimes.pytorch.submodules import program_of_module, scopes_of
from tests.unit import nets

EXAMPLE = tuple(torch.tensor(value) for value in nets.feeds(nets.BLOCKS).values())


class Kinds(nn.Module):
    """One operator of every kind."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.drop = nn.Dropout(0.5)
        self.table = nn.Embedding(8, 4)
        self.register_buffer("fine", torch.tensor(1 / 3, dtype=torch.float64))
        self.finer = nn.Parameter(torch.tensor([1 / 7], dtype=torch.float64))
        self.eval()

    def forward(self, image):
        hidden = self.drop(self.conv(image)) / 1.0
        tokens = hidden.flatten(2).transpose(1, 2)
        halves = torch.chunk(tokens, 2, dim=-1)
        gate = torch.sigmoid(halves[0]) * halves[1]
        places = self.table(torch.arange(4))
        return (
            gate,
            torch.exp(hidden) + torch.exp(hidden),
            places,
            hidden * self.fine * self.finer,
        )


class Shared(nn.Module):
    """A part that is called twice, one that returns what another made, a tuple."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(4, 4)
        self.chain = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout())
        self.single = Single()
        self.eval()

    def forward(self, rows):
        rows = self.twice(self.twice(rows))
        return self.single(self.chain(rows))[0]


class Single(nn.Module):
    """As diffusers' blocks do with return_dict=False."""

    def forward(self, rows):
        return (rows * 2,)


def exported(module, *example):
    return nets.by_graph(module, example)


@pytest.fixture(scope="module")
def image():
    return torch.from_numpy(
        np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    )


@pytest.fixture(scope="module")
def kinds(image):
    torch.manual_seed(0)
    module = Kinds()
    return module, exported(module, image)


def of(program, op):
    found = [probe for probe in program.probes if probe.op.startswith(f"aten.{op}.")]
    assert found, f"no {op} among {[probe.op for probe in program.probes]}"
    return found


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("conv2d", ValueKind.COMPUTE),
        ("sigmoid", ValueKind.COMPUTE),
        ("flatten", ValueKind.MOVE),
        ("transpose", ValueKind.MOVE),
        ("div", ValueKind.IDENTITY),
        ("dropout", ValueKind.IDENTITY),
        ("arange", ValueKind.CONSTANT),
        ("embedding", ValueKind.CONSTANT),
    ],
)
def test_a_value_is_what_its_operator_does(kinds, op, kind):
    assert {probe.kind for probe in of(kinds[1], op)} == {kind}


def test_the_same_operator_on_the_same_value_is_a_duplicate(kinds):
    first, second = of(kinds[1], "exp")
    assert first.kind is ValueKind.COMPUTE
    assert second.kind is ValueKind.DUPLICATE
    assert second.onnx == first.name


def test_halves_of_a_chunk_are_moves(kinds):
    halves = [probe for probe in kinds[1].probes if probe.op == "getitem"]
    assert [probe.kind for probe in halves] == [ValueKind.MOVE, ValueKind.MOVE]


def exp_over(divisor):
    return lambda rows: torch.exp(rows) / divisor


def exp_as(dtype):
    return lambda rows: torch.exp(rows).type_as(torch.sin(rows).to(dtype))


def einsum(equation):
    return lambda rows: torch.einsum(equation, rows)


@pytest.mark.parametrize(
    ("op", "function", "kind"),
    [
        pytest.param("div", exp_over(1.0), ValueKind.IDENTITY, id="over-1.0"),
        pytest.param("div", exp_over(1), ValueKind.IDENTITY, id="over-1"),
        pytest.param("div", exp_over(2.0), ValueKind.COMPUTE, id="over-2"),
        pytest.param(
            "type_as", exp_as(torch.float32), ValueKind.IDENTITY, id="same-dtype"
        ),
        pytest.param(
            "type_as", exp_as(torch.int32), ValueKind.COMPUTE, id="another-dtype"
        ),
        pytest.param("einsum", einsum("abc->cab"), ValueKind.MOVE, id="turned"),
        pytest.param(
            "einsum", einsum("abc -> acb"), ValueKind.MOVE, id="turned-spaced"
        ),
        pytest.param("einsum", einsum("abc->ac"), ValueKind.COMPUTE, id="summed"),
        pytest.param("einsum", einsum("aab->ab"), ValueKind.COMPUTE, id="diagonal"),
        pytest.param(
            "repeat_interleave",
            lambda rows: rows.repeat_interleave(2, dim=1),
            ValueKind.MOVE,
            id="repeated",
        ),
    ],
)
def test_an_operator_computes_only_where_it_changes_numbers(op, function, kind):
    (probe,) = of(exported(nets.Calling(function), torch.ones(2, 2, 2)), op)
    assert probe.kind is kind


def test_a_cast_is_made_of_what_it_casts_and_not_of_its_pattern():
    (cast,) = of(exported(nets.Calling(exp_as(torch.int32)), torch.ones(2)), "type_as")
    assert cast.parents == ("exp",)


def test_what_hangs_on_sizes_alone_is_constant():
    module = nets.Calling(lambda rows: rows + torch.arange(rows.shape[1]).float().sin())
    program = exported(module, torch.ones(2, 3))
    assert of(program, "sin")[0].kind is ValueKind.CONSTANT
    assert of(program, "add")[0].kind is ValueKind.COMPUTE


def test_parents_are_the_nearest_computed_values_behind_views(kinds):
    (sigmoid,), (conv,) = of(kinds[1], "sigmoid"), of(kinds[1], "conv2d")
    gate = next(p for p in of(kinds[1], "mul") if sigmoid.name in p.parents)
    assert conv.parents == ()
    assert sigmoid.parents == (conv.name,)
    assert set(gate.parents) == {sigmoid.name, conv.name}


def test_a_child_of_duplicates_has_the_twin_for_parent(kinds):
    assert of(kinds[1], "add")[0].parents == (of(kinds[1], "exp")[0].name,)


def test_positions_are_the_order_of_execution(kinds):
    assert [p.position for p in kinds[1].probes] == list(range(len(kinds[1].probes)))


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("network.down_blocks.0.conv", "down_blocks.0.conv"),
        ("L['self'].network.conv", "conv"),
        ("network", ""),
        ("", ""),
        ("networks.conv", "networks.conv"),
        ("network.attn@1.to_q", "attn.to_q"),
    ],
)
def test_a_module_has_the_name_that_the_checkpoint_gives_it(path, own):
    assert own_path(path) == own


def test_module_and_line_are_the_models_own():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = nets.Blocks()

        def forward(self, image, kind):
            return self.network(image, kind)

    program = exported(Wrapper().eval(), *EXAMPLE)
    lines, start = inspect.getsourcelines(nets.Attention.forward)
    offset = next(i for i, line in enumerate(lines) if "self.to_out(" in line)

    to_out = next(p for p in of(program, "linear") if p.module == "attention.to_out")

    assert to_out.source.endswith(f"tests/unit/nets.py:{start + offset}")
    assert {p.module for p in of(program, "conv2d")} == {"conv_in", "conv_out"}
    assert not any("/torch/" in p.source for p in program.probes)


@pytest.mark.parametrize("make", [program_of_module, nets.by_graph])
def test_a_program_gives_what_the_module_gives(make):
    module = nets.Blocks()
    program = make(module, EXAMPLE)
    seen = {}

    outputs = program.run(EXAMPLE, lambda name, value: seen.update({name: value}))

    assert all(map(torch.equal, outputs, module(*EXAMPLE)))
    computed = {p.name for p in program.probes if p.kind is ValueKind.COMPUTE}
    merged = {p.name for p in program.probes if p.kind is ValueKind.DUPLICATE}
    assert computed <= set(seen)
    assert not merged & set(seen)


def test_a_graph_hands_over_the_values_that_hooks_see():
    module = nets.Blocks()
    program, by_module = exported(module, *EXAMPLE), program_of_module(module, EXAMPLE)
    by_graph, by_hook = {}, {}
    program.run(EXAMPLE, lambda name, value: by_graph.update({name: value.clone()}))
    by_module.run(EXAMPLE, lambda name, value: by_hook.update({name: value.clone()}))
    for probe in program.probes:
        if probe.op.startswith(("aten.conv2d", "aten.linear", "aten.group_norm")):
            assert torch.equal(by_graph[probe.name], by_hook[probe.module])


@pytest.fixture(params=["graph", "modules"])
def either(request, image):
    """A module, and its program as the graph or the submodules show it."""
    module = Kinds()
    if request.param == "graph":
        return module, exported(module, image)
    return module, program_of_module(module, (image,))


def test_a_double_run_is_in_double_and_leaves_every_weight_as_it_was(either, image):
    module, program = either
    before = {k: v.clone() for k, v in module.state_dict().items()}
    first = program.run((image,), lambda *_: None)
    kinds = set()

    outputs = program.run(
        (image,), lambda _, value: kinds.add(value.dtype), double=True
    )

    assert kinds - {torch.int64} == {torch.float64}  # positions are counted
    assert {value.dtype for value in outputs} == {torch.float64}
    after = module.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert [v.dtype for v in after.values()] == [v.dtype for v in before.values()]
    again = program.run((image,), lambda *_: None)
    assert all(map(torch.equal, first, again))


def test_a_graphs_weights_are_wide_one_at_a_time(image):
    module = Kinds()
    seen = set()
    exported(module, image).run(
        (image,), lambda *_: seen.add(module.conv.weight.dtype), double=True
    )
    assert seen == {torch.float32}


def test_weights_are_restored_after_a_run_that_failed(either, image):
    def fail(*_):
        raise OSError

    module, program = either
    with pytest.raises(OSError):  # noqa: PT011  # ours, above
        program.run((image,), fail, double=True)

    assert module.conv.weight.dtype is torch.float32


@pytest.mark.parametrize("make", [program_of_module, nets.by_graph])
def test_a_run_in_float64_has_no_tensor_that_the_module_made_in_float32(make):
    """As a table of frequencies, whose rounding is then part of the noise floor."""

    def waves(steps):
        table = torch.exp(-torch.arange(8, dtype=torch.float32) / 3)
        return torch.sin(steps.to(torch.float32)[:, None] * table)

    given = (torch.tensor([999, 500]),)
    program = make(nets.Calling(waves), given)
    (single,) = program.run(given, lambda *_: None)
    (double,) = program.run(given, lambda *_: None, double=True)

    exact = np.sin(given[0].numpy()[:, None] * np.exp(-np.arange(8) / 3))
    assert np.abs(double.numpy() - exact).max() < 1e-12
    assert np.abs(single.numpy() - exact).max() > 1e-6


def test_a_module_is_seen_at_parts_that_are_called_once():
    module, rows = Shared(), torch.rand(2, 4)
    program = program_of_module(module, (rows,))

    assert {p.name: p.kind for p in program.probes} == {
        "chain.0": ValueKind.COMPUTE,
        "chain.1": ValueKind.COMPUTE,
        "chain.2": ValueKind.IDENTITY,  # dropout returns what it was given
        "chain": ValueKind.IDENTITY,  # and so does what it is the end of
        "single": ValueKind.COMPUTE,
    }
    assert [p.op for p in program.probes][:2] == ["Linear", "Tanh"]


class Attending(nn.Module):
    """Modules with operators between them, each of another kind."""

    def __init__(self, change):
        super().__init__()
        self.q, self.k, self.o = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.change = change

    def forward(self, x):
        return x + self.o(self.change(self.q(x), self.k(x)))


def _first_row_emptied(q, k):
    del k
    q[:, 0] = 0
    return q


BETWEEN = {
    "a sum": lambda q, k: q + k,
    "attention": lambda q, k: (q @ k.mT).softmax(-1) @ q,
    "softplus": lambda q, k: nn.functional.softplus(q) * k,
    "a floor division": lambda q, k: q // 2 + k,
    "exchanged halves": lambda q, k: torch.cat([q[:, 2:], k[:, :2]], 1),
    "a slice in place": _first_row_emptied,
    "another shape": lambda q, k: (q * k).reshape(-1, 2).reshape(q.shape),
}


@pytest.mark.parametrize("change", BETWEEN.values(), ids=BETWEEN)
def test_operators_between_two_modules_are_known(change):
    program = program_of_module(Attending(change), (torch.rand(4, 4),))
    o = {probe.name: probe for probe in program.probes}["o"]
    assert o.between
    assert o.parents[:1] == ("q",)


@pytest.mark.parametrize(
    "change", [lambda q, _: q, lambda q, _: q.clone().detach()], ids=["", "copied"]
)
def test_between_two_modules_that_follow_each_other_stands_nothing(change):
    program = program_of_module(Attending(change), (torch.rand(4, 4),))
    assert [(p.name, p.between) for p in program.probes] == [
        *(("q", False), ("k", False), ("o", False))
    ]


def test_what_a_module_does_itself_does_not_stand_before_it():
    module = nn.Sequential(nn.Linear(4, 4), Attending(lambda q, k: q + k))
    program = program_of_module(module, (torch.rand(4, 4),))
    found = {probe.name: (probe.parents, probe.between) for probe in program.probes}
    assert found["1"] == (("0", "1.o"), False)
    assert found["1.o"] == (("1.q", "1.k"), True)


def test_an_activation_in_place_computes():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Identity())
    program = program_of_module(module.eval(), (torch.rand(2, 4),))
    assert [p.kind for p in program.probes] == [
        ValueKind.COMPUTE,
        ValueKind.COMPUTE,
        ValueKind.IDENTITY,
    ]


def test_scopes_are_the_modules_called_around_a_part():
    called = {
        "net": 1,
        "net.ups.0": 1,
        "net.ups.0.conv": 2,
        "net.seq": 1,
        "net.seq.1": 1,
    }

    assert scopes_of(called) == {
        "net": "net",
        "net/ups.0": "net.ups.0",
        "net/ups.0/conv": "net.ups.0.conv",
        "net/seq": "net.seq",
        "net/seq/seq.1": "net.seq.1",
    }


def test_a_scope_that_two_parts_share_is_nobodys():
    assert scopes_of({"one.act": 1, "two.act": 1, "act_1": 1}) == {"act_1": "act_1"}


def test_a_tuple_of_one_tensor_is_that_tensor():
    module, rows = Shared(), torch.rand(2, 4)
    seen = {}
    program = program_of_module(module, (rows,))
    (out,) = program.run((rows,), lambda name, value: seen.update({name: value}))
    assert torch.equal(seen["single"], out)


def test_no_hook_stays_behind():
    module, rows = Shared(), torch.rand(2, 4)
    program_of_module(module, (rows,)).run((rows,), lambda *_: None)
    assert not any(part._forward_hooks for part in module.modules())


@pytest.mark.parametrize("number", [-math.inf, math.inf, math.nan, -1e9])
def test_probes_with_any_constant_argument_are_read_again(tmp_path, image, number):
    class Masked(nn.Module):
        def forward(self, pixels):
            return pixels.masked_fill(pixels > 0, number)

    probes = tuple(exported(Masked(), image).probes)
    save_probes(probes, tmp_path / "probes.json")

    read = load_probes(tmp_path / "probes.json")
    assert [probe.op for probe in read] == [probe.op for probe in probes]


def test_whole_numbers_among_constant_arguments_stay_whole(tmp_path, image):
    class Soft(nn.Module):
        def forward(self, pixels):
            return (pixels * 2).softmax(dim=-1)

    save_probes(tuple(exported(Soft(), image).probes), tmp_path / "probes.json")
    told = [dict(probe.settings) for probe in load_probes(tmp_path / "probes.json")]

    (dim,) = [one["dim"] for one in told if "dim" in one]
    assert dim == -1
    assert isinstance(dim, int)


def test_memory_that_nobody_filled_is_zero_in_the_program(tmp_path):
    class Filled(nn.Module):
        def forward(self, x):
            held = torch.empty_like(x)
            held[:, ::2] = x[:, ::2] * 2
            return held[:, ::2] * 3

    rows = nets.component("rows", {"x": ("batch", 8)})
    exported = nets.export(Filled().eval(), rows, tmp_path)
    seen: dict[str, torch.Tensor] = {}
    dirty = torch.full((2, 8), torch.nan)
    del dirty
    exported.program.run((torch.ones(2, 8),), seen.__setitem__)

    assert not seen["empty_like"].any()
    assert seen["slice_scatter"].tolist() == [[2, 0] * 4] * 2
