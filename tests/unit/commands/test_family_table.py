"""`harness.commands.family_table`: every cell a number or a reason, none left blank."""

import math
from dataclasses import replace

import pytest

from harness.commands.family_table import (
    BEGIN,
    END,
    Network,
    Ran,
    family_table,
    refreshed,
)
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.judge.case import CaseVerdict, JudgedRow
from harness.judge.known_gaps import Gap
from harness.judge.tolerance import TIERS
from harness.judge.value import judge
from tests.unit.reports import output

TOLERANCE = TIERS["standard"].outputs
NETWORK = Network(
    family="Flux",
    suite="flux",
    recipe="transformer",
    component="transformer",
    exporter="dynamo",
)
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


def known(what, found, floors=7.0):
    """A check that ends as a gap says."""
    return verdict(
        what,
        Outcome.GAP,
        reason=f"3 of 9 values out of tolerance; {FUSES.words}",
        floors=floors,
        found=found,
        gap=FUSES,
    )


def ran(*verdicts, backend="mnn", variant="fp32"):
    return Ran(backend=backend, variant=variant, verdicts=verdicts)


def lines(*cases, network=NETWORK):
    return family_table({network: list(cases)}).splitlines()


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


def test_an_output_of_nothing_but_nan_is_infinitely_far_off():
    near, lost = verdict(floors=1.0), verdict(floors=math.nan)
    table = lines(ran(replace(near, rows=(*near.rows, *lost.rows))))

    assert "fp32 inf |" in table[2]


def test_a_failure_has_a_cross_and_its_reason():
    failed = verdict(outcome=Outcome.EXPORT, reason="stops at aten::rms_norm")
    table = lines(ran(failed, replace(failed, what="layers")))

    assert "fp32 ✗ [1] |" in table[2]
    assert table[-1] == "1. export: stops at aten::rms_norm"


def test_a_known_gap_is_named_and_has_no_cross():
    table = lines(ran(known("outputs", Outcome.EXCEEDS)))

    assert table[2].endswith("| fp32 7 [1] |")
    assert table[-1] == "1. exceeds: known gap: MNN fuses (issue 31)"


def test_a_gap_has_one_number_however_the_checks_that_it_explains_end():
    layers = known("layers", Outcome.EXCEEDS)
    table = lines(
        ran(layers, known("outputs", Outcome.DEAD_INPUT)),
        ran(layers, known("outputs", Outcome.EXCEEDS), variant="fused"),
    )

    assert table[2].endswith("| fp32 7 [1] · fused 7 [1] |")
    assert table[4:] == ["1. exceeds, dead-input: known gap: MNN fuses (issue 31)"]


def test_checks_that_fail_by_themselves_have_a_reason_each():
    off = verdict("layers", Outcome.EXCEEDS, "7 of 9 values", floors=40.0)
    table = lines(ran(off, replace(off, what="outputs", reason="1 of 1 value")))

    assert table[2].endswith("| fp32 ✗ 40 [1] [2] |")
    assert table[4:] == [
        "1. layers: exceeds: 7 of 9 values",
        "2. exceeds: 1 of 1 value",
    ]


def test_a_gap_that_no_longer_fails_has_a_cross_and_its_reason():
    stale = verdict(
        outcome=Outcome.STALE_GAP,
        reason="gap says exceeds, and it passes; remove the gap",
        found=Outcome.WITHIN,
    )
    table = lines(ran(stale))

    assert "fp32 ✗ [1] |" in table[2]
    assert table[-1] == f"1. {Outcome.STALE_GAP}: {stale.reason}"


def test_one_reason_is_told_once_for_all_that_it_explains():
    failed = verdict(outcome=Outcome.CONVERT, reason="These Op Not Support: IsNaN")
    table = lines(ran(failed), ran(failed, variant="fp16-weights"))

    assert table[2].count("[1]") == 2
    assert sum("IsNaN" in line for line in table) == 1


def test_networks_of_two_exporters_have_a_row_each():
    other = replace(NETWORK, exporter="torchscript")
    table = family_table({other: [ran(verdict())], NETWORK: [ran(verdict())]})

    assert [line.split(" | ")[2] for line in table.splitlines()[2:]] == [
        "dynamo",
        "torchscript",
    ]


def test_a_component_of_another_name_than_its_recipe_is_named_in_its_row():
    table = lines(ran(verdict()), network=replace(NETWORK, component="masked"))

    assert table[2].split(" | ")[1] == "`transformer` (`masked`)"


def test_two_components_of_one_recipe_have_a_row_each():
    masked = replace(NETWORK, component="transformer_masked")
    other = replace(NETWORK, component="vae_decoder", recipe="vae_decoder")
    table = family_table({n: [ran(verdict())] for n in (masked, other, NETWORK)})

    assert [line.split(" | ")[1] for line in table.splitlines()[2:]] == [
        "`transformer`",
        "`transformer` (`transformer_masked`)",
        "`vae_decoder`",
    ]


def test_the_table_replaces_what_stands_between_the_markers_and_nothing_else():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = refreshed(text, "| new |\n", "README.md")

    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert refreshed(once, "| new |\n", "README.md") == once


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n"])
def test_a_file_without_both_markers_is_refused_with_the_lines_to_add(text):
    with pytest.raises(SuiteError, match=r"families:begin.*families:end"):
        refreshed(text, "", "README.md")
