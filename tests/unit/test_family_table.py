"""`docs/families.py`: every cell is a number or a reason, and none is left blank."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from docs.families import BEGIN, END, family_table, refreshed
from harness.core.outcome import Outcome
from harness.judge.case import CaseVerdict
from harness.judge.known_gaps import Gap
from harness.judge.tolerance import TIERS
from harness.judge.value import JudgedRow, judge
from tests.unit.reports import output

TOLERANCE = TIERS["standard"]["outputs"]
ROW = ("Flux", "flux", "transformer", "dynamo", "transformer")
FUSES = Gap(case="*", outcome=Outcome.EXCEEDS, why="MNN fuses", issue="31")


def verdict(what="outputs", outcome=Outcome.WITHIN, reason="", floors=None, **about):
    measured = [] if floors is None else [output(floors)]
    about = {"found": outcome, **about}
    return CaseVerdict(
        case="transformer/mnn/fp32",
        suite="flux/parity.toml",
        what=what,
        outcome=outcome,
        reason=reason,
        worst=None,
        first=None,
        inputs=(),
        rows=tuple(
            JudgedRow(row=row, verdict=judge(row.comparison, TOLERANCE, is_output=True))
            for row in measured
        ),
        **about,
    )


def known(what, found):
    """A check that ends as a gap says."""
    return verdict(what, Outcome.GAP, floors=7.0, found=found, gap=FUSES)


def ran(*verdicts, backend="mnn", variant="fp32", row=ROW):
    case = SimpleNamespace(backend=backend, variant=SimpleNamespace(name=variant))
    return row, case, verdicts


def lines(*cases):
    return family_table(cases).splitlines()


FAILED = verdict(outcome=Outcome.EXPORT, reason="stops at aten::rms_norm")
OFF = verdict("layers", Outcome.EXCEEDS, "7 of 9 values", floors=40.0)
NEAR, LOST = verdict(floors=1.0), verdict(floors=math.nan)


@pytest.mark.parametrize(
    ("verdicts", "cell", "reasons"),
    [
        pytest.param(
            [replace(NEAR, rows=(*NEAR.rows, *LOST.rows))], "fp32 inf", [], id="nan"
        ),
        pytest.param(
            [FAILED, replace(FAILED, what="layers")],
            "fp32 ✗ [1]",
            ["1. export: stops at aten::rms_norm"],
            id="a-failure-has-a-cross-and-a-reason",
        ),
        pytest.param(
            [known("layers", Outcome.EXCEEDS), known("outputs", Outcome.DEAD_INPUT)],
            "fp32 7 [1]",
            ["1. exceeds, dead-input: known gap: MNN fuses (issue 31)"],
            id="a-known-gap-is-one-reason-without-a-cross",
        ),
        pytest.param(
            [OFF, replace(OFF, what="outputs", reason="1 of 1 value")],
            "fp32 ✗ 40 [1] [2]",
            ["1. layers: exceeds: 7 of 9 values", "2. exceeds: 1 of 1 value"],
            id="each-check-that-fails-has-a-reason",
        ),
        pytest.param(
            [verdict(outcome=Outcome.STALE_GAP, reason="remove the gap")],
            "fp32 ✗ [1]",
            [f"1. {Outcome.STALE_GAP}: remove the gap"],
            id="a-stale-gap-has-a-cross",
        ),
    ],
)
def test_a_cell_is_a_number_or_a_reason(verdicts, cell, reasons):
    table = lines(ran(*verdicts))
    assert table[2].endswith(f"| {cell} |")
    assert table[4:] == reasons


def test_a_row_holds_the_worst_error_of_each_runtime():
    table = lines(
        ran(verdict(floors=1.26), backend="onnxruntime"),
        ran(verdict(floors=2.0)),
        ran(verdict(floors=4117.0), variant="fp16-weights"),
    )

    assert table[2] == (
        "| Flux (`flux`) | `transformer` | dynamo | fp32 1.3 "
        "| fp32 2 · fp16-weights 4,100 |"
    )


def test_networks_and_exporters_have_a_row_each_in_order():
    others = (*ROW[:3], "torchscript", "transformer"), (*ROW[:4], "masked")
    table = lines(*(ran(verdict(), row=row) for row in (*others, ROW)))
    assert [line.split(" | ")[1:3] for line in table[2:]] == [
        ["`transformer` (`masked`)", "dynamo"],
        ["`transformer`", "dynamo"],
        ["`transformer`", "torchscript"],
    ]


def test_the_table_replaces_what_stands_between_the_markers_and_nothing_else():
    once = refreshed(f"before\n{BEGIN}\nold\n{END}\nafter\n", "| new |\n")
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert refreshed(once, "| new |\n") == once


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n"])
def test_a_file_without_both_markers_is_refused(text):
    with pytest.raises(SystemExit, match=r"families:begin.*families:end"):
        refreshed(text, "")
