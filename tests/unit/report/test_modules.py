"""Errors by module: a value under a path counts once on every level of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.core.record import ISOLATED, LAYERS
from harness.core.text import screen
from harness.report.layers import module_lines, rolled_up
from tests.unit.found import verdicts_of
from tests.unit.reports import record, row

ROWS = (
    row("a", 1.0, position=0, module="down.0.conv"),
    row("b", 400.0, position=1, module="down.1.norm"),
    row("c", 300.0, position=2, module="down.1.conv"),
    row("d", 2.0, position=3, module="up.0.conv"),
)
OWN = tuple(
    replace(each, what=ISOLATED, comparison=row(each.probe, floors).comparison)
    for each, floors in zip(ROWS, (0.5, 400.0, 1.5, 1.0), strict=True)
)

NAN = row("n", math.nan, position=1, module="mid.norm")
NAN_OWN = (replace(NAN, what=ISOLATED),)


@pytest.fixture
def judged(tmp_path):
    def of(*rows):
        made = record(*rows)
        return made, verdicts_of(tmp_path, made, whats=(LAYERS,))

    return of


def test_a_module_has_what_all_of_its_parts_have(judged):
    whole = rolled_up(*judged(*ROWS, *OWN))
    assert (whole.values, whole.out) == (4, 2)
    down = whole.parts["down"]
    assert (down.values, down.out) == (3, 2)
    assert down.floors == pytest.approx(400.0, rel=1e-3)
    assert list(down.parts) == ["0", "1"]
    assert whole.parts["up"].out == 0


def test_a_propagated_error_is_told_from_an_operators_local_error(judged):
    parts = rolled_up(*judged(*ROWS, *OWN)).parts["down"].parts["1"].parts
    assert parts["norm"].local == pytest.approx(400.0, rel=1e-3)
    assert parts["conv"].floors == pytest.approx(300.0, rel=1e-3)
    assert parts["conv"].local == pytest.approx(1.5, rel=1e-3)


def test_what_is_out_of_tolerance_is_shown_to_the_end_and_the_rest_is_not(judged):
    made, verdicts = judged(*ROWS, *OWN)
    lines = [line.text for line in screen(module_lines(made, verdicts, depth=1))]

    assert lines[0] == "unet/mnn/fp32: 4 values by module, 2 out of tolerance"
    assert lines[1] == "  floors: × PyTorch's own float32 rounding error"
    names = [line.split()[4:] for line in lines[3:]]
    assert names == [["down"], ["1"], ["norm", "conv2d"], ["conv", "conv2d"], ["up"]]


@pytest.mark.parametrize("own", [(), NAN_OWN], ids=["as-it-ran", "isolated"])
def test_a_module_of_nothing_but_nan_is_infinitely_far_off(judged, own):
    made, verdicts = judged(ROWS[0], NAN, *own)
    down, mid = rolled_up(made, verdicts).parts.values()
    assert (mid.floors, mid.out) == (math.inf, 1)
    assert math.isnan(down.local)
    last = list(screen(module_lines(made, verdicts, depth=1)))[-1].text.split()
    assert last[:2] == ["inf", "inf" if own else "-"]


def test_without_isolated_runs_the_local_column_is_empty(judged):
    made, verdicts = judged(*ROWS)
    lines = [line.text for line in screen(module_lines(made, verdicts, depth=1))]

    assert all(line.split()[1] == "-" for line in lines[3:])
