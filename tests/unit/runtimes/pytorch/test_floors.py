"""`harness.runtimes.pytorch.floors`: a bound on the next float32 run."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from harness.measure.compare import compare
from harness.measure.trace import OUTPUT, open_trace
from harness.runtimes.pytorch.floors import (
    DRAWS,
    FEW,
    floor_of,
    other_rounding,
    redraw,
    widening,
)
from harness.runtimes.pytorch.reference import record_reference
from harness.runtimes.pytorch.submodules import program_of_module
from tests.unit import nets

TOKENS = nets.component("tokens", {"rows": (1, 64)})
ROWS = {"rows": np.random.default_rng(3).normal(size=(1, 64)).astype(np.float32)}


class Head(nn.Module):
    """A classification head: 64 numbers in, 3 out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        self.head = nn.Linear(64, 3)

    def forward(self, rows):
        return self.head(self.body(rows))


@pytest.fixture(params=[nets.by_graph, program_of_module], ids=["graph", "modules"])
def head(request, tmp_path):
    module = Head().eval()
    rows = torch.from_numpy(ROWS["rows"])
    program = request.param(module, (rows,))
    record_reference(module, program, TOKENS, ROWS, tmp_path, device="cpu")
    return program, rows, open_trace(tmp_path)


def test_few_elements_move_and_by_one_unit_in_the_last_place():
    value = torch.randn(120, 1000)
    moved = other_rounding(0)(value)
    steps = (moved.view(torch.int32) - value.view(torch.int32)).abs()
    assert steps.max() == 1
    assert steps.float().mean() == pytest.approx(1 / 12, rel=0.02)


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(4096),
        torch.full((4096,), torch.finfo(torch.float32).min),
        torch.full((4096,), -math.inf),
        torch.arange(4096),
    ],
    ids=["zeros", "mask", "infinity", "integers"],
)
def test_what_no_machine_rounds_stays(value):
    assert torch.equal(other_rounding(0)(value), value)


def test_a_value_keeps_its_layout():
    """A program may view a value in a way that its layout alone allows."""
    value = torch.randn(2, 8, 4, 4).contiguous(memory_format=torch.channels_last)
    moved = other_rounding(0)(value)
    assert moved.stride() == value.stride()
    assert not torch.equal(moved, value)
    assert moved.permute(0, 2, 3, 1).view(2, 16, 8).shape == (2, 16, 8)


def test_one_draw_of_three_elements_is_widened_by_what_chance_can_do():
    """99.99 in 100 ratios of two equally good draws are below the floor's."""
    rng = np.random.default_rng(0)
    one, two = (rng.normal(size=(400_000, 3)) for _ in range(2))
    ratio = np.sqrt((one**2).mean(axis=1) / (two**2).mean(axis=1))
    assert (ratio > widening(3, 3)).mean() == pytest.approx(1e-4, rel=0.5)
    assert (ratio > 4).mean() > 0.02


def test_draws_make_the_floor_of_few_elements_narrower():
    rng = np.random.default_rng(1)
    draws = [float(np.mean(rng.normal(size=3) ** 2)) for _ in range(1 + DRAWS)]
    assert floor_of(draws[:1], (), 3) / math.sqrt(draws[0]) > 20
    assert 1.5 < floor_of(draws[:1], draws[1:], 3) < 8


def test_elements_that_err_together_count_as_one():
    together = [0.1, 4.0, 0.2, 0.01, 2.5, 0.3, 1.0, 0.05, 3.0]
    alone = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98, 1.0]
    mean = sum(together) / len(together)
    assert floor_of(together[:1], together[1:], 40) / math.sqrt(mean) > 3
    assert floor_of(alone[:1], alone[1:], 40) < 1.6


def test_no_other_rounding_of_a_head_of_three_is_beyond_two_floors(head):
    """A bound of 4 floors must leave room for a runtime that is not PyTorch."""
    program, rows, trace = head
    floor, single = trace.floor_rms(OUTPUT + "out"), trace[OUTPUT + "out"]
    errors = []
    for seed in range(1000, 1200):
        (out,) = program.run((rows,), lambda *_: None, rounding=other_rounding(seed))
        errors.append(compare(expected=single, actual=out.numpy()).rms)

    assert single.size == 3
    assert len(set(errors)) > 20
    assert floor is not None
    assert max(errors) < 2 * floor


def test_a_small_error_of_the_head_is_still_far_beyond_the_bound(head):
    """A head whose first class is off by 1e-4 of its size."""
    _, _, trace = head
    single = trace[OUTPUT + "out"]
    wrong = single * np.array([1 + 1e-4, 1, 1], np.float32)

    found = compare(
        expected=single, actual=wrong, floor_rms=trace.floor_rms(OUTPUT + "out")
    )
    assert found.floor_multiple is not None
    assert found.floor_multiple > 16


def test_a_run_ends_when_all_that_is_wanted_was_seen():
    module = Head().eval()
    rows = torch.from_numpy(ROWS["rows"])
    program = program_of_module(module, (rows,))
    seen = []

    def run(inputs, on_value, rounding):
        def note(name, value):
            seen.append(name)
            on_value(name, value)

        return program.run(inputs, note, rounding=rounding)

    draws = list(redraw(run, (rows,), {"body.0"}, dict, whole=False))

    assert seen == ["body.0"] * DRAWS
    assert all(set(draw) == {"body.0"} for draw in draws)
    assert len({draw["body.0"].tobytes() for draw in draws}) == DRAWS


def test_values_of_many_elements_rest_on_one_draw():
    assert floor_of([4.0], (), 10**6) == pytest.approx(2.0, rel=0.01)
    assert widening(FEW, FEW) < 1.7


class Narrow(nn.Module):
    """A network with a cast to float16, and a table that is no buffer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.table = nn.Linear(64, 8), torch.randn(8, 8)

    def forward(self, rows):
        return (self.linear(rows) @ self.table).half()


@pytest.mark.parametrize("program_of", [nets.by_graph, program_of_module])
def test_a_cast_to_float16_is_part_of_the_noise(program_of, tmp_path):
    module = Narrow().eval()
    program = program_of(module, (torch.from_numpy(ROWS["rows"]),))
    record_reference(module, program, TOKENS, ROWS, tmp_path, device="cpu")
    trace = open_trace(tmp_path)
    (output,) = [name for name in trace if name.startswith(OUTPUT)]
    # One unit in the last place of float16 is 2^-11 of a number at most.
    assert trace.floor_rms(output) > 2**-14 * np.abs(trace[output]).mean()
