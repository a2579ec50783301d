"""The summary of a finished run; the clearest failure comes first."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.core.outcome import Outcome
from harness.core.record import ISOLATED, LAYERS, OUTPUTS
from harness.core.settings import Settings
from harness.core.text import FLOORS, WIDTH, case_line, screen
from harness.judge.known_gaps import Gap
from harness.measure.compare import compare
from harness.report.layers import layer_lines
from harness.report.markdown import markdown
from harness.report.summary import DETAILED, summary
from tests.unit.found import verdicts_of
from tests.unit.reports import CASE, chain, output, record, row

RAN = {
    "backend": "mnn",
    "version": "3.6.1",
    "device": "cpu",
    "threads": 1,
    "precision": "high",
}


@pytest.fixture
def said(found):
    def say(*records, report="", **about):
        return [
            line.text
            for line in screen(summary(found(*records, **about), report=report))
        ]

    return say


@pytest.fixture
def listed(found):
    """Returns the lines of a case's values."""

    def listed(made, sample="", **about):
        verdicts = found(made, **about).verdicts
        return [
            line.text for line in screen(layer_lines(made, verdicts, sample=sample))
        ]

    return listed


def alone(rows, *floors):
    """The local error of each value's operator, on the reference's own inputs."""
    return [
        replace(each, what=ISOLATED, comparison=row(each.probe, own).comparison)
        for each, own in zip(rows, floors, strict=True)
    ]


def good(case=CASE):
    return record(*chain(1, 2), output(2), case=case, ran=RAN)


def bad(case=CASE, floors=411.0):
    return record(*chain(1, 3, floors, 90), output(61), case=case, ran=RAN)


def failed(case=CASE, message="it died", log=""):
    failure = {"outcome": "crashed", "message": message, "log": log}
    return record(case=case, failure=failure, coverage=None)


def test_it_leads_with_the_first_divergence(said):
    lines = said(good("vae/mnn/fp32"), bad())
    agree = "its inputs agree to 3 floors"

    assert lines[:6] == [
        " ✗ unet/mnn/fp32   first diverges at net.v2  (conv2d)",
        f"     411 floors ({FLOORS}), allowed 16 · {agree}",
        "     output off by 61 floors",
        "     from net.v1 (conv2d) [2, 8] 3 floors",
        "     on s-0 · worst at [0, 0] of [2, 8] · -0.589, expected -1",
        "     net.py:7",
    ]
    assert lines[6] == " 1 of 2 cases agree. Closest to their limit:"
    assert lines[-2:] == [
        " all layers  parity show last unet/mnn/fp32",
        " why         parity explain unet/mnn/fp32",
    ]


def test_the_commands_that_it_ends_with_ask_the_same_again(said):
    asked = Settings(
        tier="strict", changes=("floors=20",), runs="my runs", store="/kept"
    )

    lines = said(bad(), next_steps=asked.next_steps("RUN", Path("moved")))

    judged = "--tier strict --set floors=20"
    show = "parity show RUN unet/mnn/fp32 --runs 'my runs' --suite moved"
    explain = (
        "parity explain unet/mnn/fp32 --runs 'my runs' --suite moved --store /kept"
    )
    assert lines[-2:] == [
        f" all layers  {show} {judged}",
        f" why         {explain} {judged}",
    ]


@pytest.mark.parametrize(
    ("records", "cases"),
    [
        pytest.param(
            [failed("a/mnn/fp32"), bad("b/mnn/int8-weights"), bad("c/mnn/fp32")],
            ["c/mnn/fp32", "b/mnn/int8-weights", "a/mnn/fp32"],
            id="measured-first",
        ),
        pytest.param(
            [bad("a/mnn/fp32", 20), bad("b/mnn/fp32", 2000)],
            ["b/mnn/fp32", "a/mnn/fp32"],
            id="larger-first",
        ),
    ],
)
def test_the_clearest_failure_leads(said, records, cases):
    heads = [line.split()[1] for line in said(*records) if line.startswith(" ✗")]
    assert heads == cases


def test_one_reason_for_many_cases_is_told_once(said):
    lines = said(
        *(
            failed(f"{name}/mnn/fp32", f"{name}/mnn/fp32: no operator IsNaN")
            for name in "abc"
        )
    )

    assert lines[0] == " ✗ a/mnn/fp32 and 2 more   crashed"
    assert lines[1].strip() == "a/mnn/fp32: no operator IsNaN"
    assert lines[2].strip() == "also b/mnn/fp32, c/mnn/fp32"


def test_native_last_words_are_shown_unless_they_were_said(said):
    lines = said(failed(message="it died: SIGSEGV", log="one\ntwo\nit died: SIGSEGV\n"))
    assert [line.strip() for line in lines[2:4]] == ["│ one", "│ two"]
    assert not any("│ it died" in line for line in lines)


def test_after_a_few_explanations_there_is_a_line_each(said):
    many = [bad(f"c{n}/mnn/fp32", 20 + n) for n in range(DETAILED + 3)]
    lines = said(*many)
    assert sum(line.startswith(" ✗") for line in lines) == len(many)
    assert sum("allowed 16" in line for line in lines) == DETAILED


def test_an_output_that_diverges_alone_says_that_layers_agree(said):
    lines = said(record(*chain(1, 2), output(61)))
    assert lines[0] == " ✗ unet/mnn/fp32   first diverges at output sample"
    assert f"61 floors ({FLOORS}), allowed 16" in lines[1]
    assert "every layer within tolerance (2 compared)" in lines[2]
    lines = said(record(output(61)), whats=(OUTPUTS,))
    assert lines[0] == " ✗ unet/mnn/fp32   first diverges at output sample"
    assert not any("layers:" in line or "every layer" in line for line in lines)


def test_a_check_without_rows_is_said(said):
    lines = said(record(output(1)))
    assert lines[0] == " ✗ unet/mnn/fp32   layers: empty"
    assert lines[1].strip() == "layers: no layers were compared"


def test_one_batch_item_that_carries_the_error_is_named(said):
    expected = np.ones((2, 8))
    actual = expected.copy()
    actual[1] += 1.0
    wrong = compare(expected=expected, actual=actual, floor_rms=1e-3)
    lines = said(record(replace(row("v0", 1), comparison=wrong), output(1)))
    assert "batch item 1 has all of the error, the other agrees" in "\n".join(lines)


def test_a_gap_that_went_stale_says_so(said):
    gap = Gap(case="unet/*/layers", outcome=Outcome.EXCEEDS, why="known", source="g:1")
    lines = said(good(), gaps=[gap])
    assert lines[0] == " ✗ unet/mnn/fp32   layers: stale-gap"
    reason = " ".join(line.strip() for line in lines[1:3])
    assert reason.endswith("and it passes; remove the gap (g:1)")


def test_a_known_gap_is_counted_and_named(said):
    gap = Gap(case="unet/*", outcome=Outcome.EXCEEDS, why="known")
    lines = said(bad(), gaps=[gap])
    assert lines[0] == " 1 of 1 case agrees."
    assert lines[1] == " 1 of them only by a known gap: unet/mnn/fp32"


def test_a_runtime_that_is_missing_counts_for_nothing(said):
    failure = {"outcome": "unavailable", "message": "mnn is not installed"}
    gone = record(failure=failure, coverage=None)
    assert said(gone) == [
        " nothing was compared",
        " 1 case skipped: mnn is not installed",
    ]
    assert said(gone, required=("mnn",))[0] == " ✗ unet/mnn/fp32   unavailable"


def test_a_run_that_agrees_is_short(said):
    assert said(good(), report="reports/runs/x/report.json") == [
        " 1 of 1 case agrees. Closest to their limit:",
        f"   unet/mnn/fp32  net.v1  2 floors ({FLOORS}), allowed 16",
        " coverage at least 100.0% in mnn",
        " ran mnn 3.6.1 on CPU (1 thread, precision high)",
        " report      reports/runs/x/report.json",
    ]


@pytest.mark.parametrize(
    ("suites", "about", "ends"),
    [
        (["/s/parity.toml"], {"whole": False}, True),
        (["/s/parity.toml", "/t/parity.toml"], {"whole": False}, False),
        (["/s/parity.toml"], {"whole": False, "shard": {}}, False),
        (["/s/parity.toml"], {}, False),
    ],
)
def test_a_part_of_one_suite_ends_with_a_run_of_all_of_it(found, suites, about, ends):
    asked = Settings(
        store="/kept",
        read_only=True,
        tier="strict",
        require=("mnn", "onnxruntime"),
        on="ray",
        isolate=True,
    )
    records = [replace(good(), suite=suite) for suite in suites]
    facts = found(*records, next_steps=asked.next_steps("RUN"))

    lines = summary(replace(facts, about={**facts.about, **about}), report="x")

    told = (
        "parity run --suite /s --store /kept --tier strict --read-only "
        "--require mnn,onnxruntime --on ray --isolate   runs every case"
    )
    said = [line.text for line in screen(lines) if line.text.startswith(" next ")]
    assert said == [f" next        {told}"] * ends


def test_long_names_do_not_break_the_width(said, listed):
    block = "down_blocks.0.attentions.0.transformer_blocks.0"
    module = f"{block}.ff.net.0.proj.wrapped.and.wrapped.once.more"
    case = "controlled_unet/mnn/int8-weights"
    rows = (
        row("a", 3, module=module),
        row("b", 99, parents=("a",), position=1, module=module),
    )
    wide = record(*rows, output(50), case=case, ran=RAN)

    assert [line for line in said(wide) if len(line) > WIDTH] == []
    lines = listed(wide)
    assert [line for line in lines if len(line) > WIDTH] == []
    assert lines[-1].endswith("sample  output")


def test_layers_come_in_order_with_a_plot_and_a_mark(listed):
    lines = listed(record(*chain(0, 1, 3, 411, 90), output(61)))

    assert lines[0] == (
        "unet/mnn/fp32: 6 values in order of execution, 3 out of tolerance"
    )
    assert lines[1].strip() == "▁▂█▆▅"
    assert lines[1].startswith("   ▁")
    assert lines[2].endswith(f" floors ({FLOORS})")
    values = lines[4:]
    assert [line.split()[0] for line in values] == ["0", "1", "3", "411", "90", "61"]
    assert ["✗" in line for line in values] == [False] * 3 + [True] * 3


def test_a_bounded_cosine_distance_has_a_column_and_a_reason(tmp_path):
    angles = (
        "[mnn.fp32]\noutputs = { cosine_distance = 1e-4 }\n"
        'layers = { cosine_distance = 1e-4 }\nwhy = "angles alone matter"\n'
    )
    noise = np.random.default_rng(0).standard_normal((2, 500)).astype(np.float32)
    off = noise + 0.1 * np.random.default_rng(1).standard_normal((2, 500))
    turned = replace(row("v1", 1), comparison=compare(expected=noise, actual=off))
    made = record(row("v0", 0), turned, output(0))
    verdicts = verdicts_of(tmp_path, made, text=angles)

    lines = [line.text for line in screen(layer_lines(made, verdicts))]

    distance = turned.comparison.cosine_distance
    assert distance == pytest.approx(0.005, rel=0.2)
    assert lines[3].split() == [
        *("floors", "max", "abs", "SQNR", "dB", "cos", "dist", "where")
    ]
    assert f"{distance:.2e} ✗" in next(line for line in lines if "net.v1" in line)
    assert verdicts[0].outcome is Outcome.EXCEEDS
    assert f"cosine distance {distance:.3e}, allowed 1.000e-04" in verdicts[0].reason
    assert verdicts[1].outcome is Outcome.WITHIN


def test_layers_of_one_sample_are_only_its_own(listed):
    made = record(*chain(1, 2, sample="s-0"), *chain(5, 6, sample="s-1"))
    lines = listed(made, sample="s-0", whats=(LAYERS,))
    assert [line.split()[0] for line in lines[4:]] == ["1", "2"]


def test_a_case_without_values_says_why(listed):
    (line,) = listed(failed())
    assert line == "unet/mnn/fp32: no values were compared: it died"


def test_markdown_has_the_summary_and_a_row_a_case(found):
    facts = found(good("vae/mnn/fp32"), bad())
    text = markdown(facts, list(summary(facts)))
    assert text.startswith(f"## Parity {facts.run}\n\n```text\n ✗ unet/mnn/fp32 ")
    assert "\n| vae/mnn/fp32 | within | within | 2 floors |" in text
    assert "\n| unet/mnn/fp32 | **exceeds** | **exceeds** | 61 floors |" in text


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"layers": {"parity.outcome": "within", "parity.usage": "0.36"}},
            "✓ c layers use 36% of tolerance",
        ),
        (
            {
                "layers": {"parity.outcome": "exceeds", "parity.first_divergence": "m"},
                "outputs": {"parity.outcome": "gap"},
            },
            "✗ c layers exceeds · outputs known gap · first diverges at m",
        ),
        (
            {
                "outputs": {
                    "parity.outcome": "exceeds",
                    "parity.own": "off by 1.6 × the model's own bfloat16",
                }
            },
            "✗ c outputs exceeds · off by 1.6 × the model's own bfloat16",
        ),
        ({"outputs": {"parity.outcome": "unavailable"}}, "- c not installed"),
        ({"outputs": {"parity.outcome": "crashed"}}, "✗ c outputs crashed"),
    ],
    ids=["within", "mixed", "own", "unavailable", "crashed"],
)
def test_a_case_has_one_line(told, words):
    assert " ".join(case_line("c", told).text.split()) == words


def test_the_place_is_told_after_the_longest_words():
    far = "picture 11.8 dB, off by 188 of 255 · 100% from text_encoder"
    told = {
        "latents": {
            "parity.outcome": "exceeds",
            "parity.first_divergence": "step 10 of 10",
        },
        "image": {"parity.outcome": "exceeds", "parity.picture": far},
    }

    text = case_line("text2img/mnn/fused", told).text

    assert text.endswith(f"{far} · image exceeds · first diverges at step 10 of 10")


def test_every_operator_with_a_local_error_is_named_with_its_kind(said):
    rows = chain(1, 40, 90)
    text = "\n".join(said(record(*rows, *alone(rows, 1, 40, 80), output(2), ran=RAN)))
    assert "first diverges at net.v1  (conv2d)" in text
    assert "1 other operator has a local error: net.v2 (conv2d)" in text


def test_a_module_whose_inputs_were_not_compared_has_no_local_error(said):
    first, second = chain(1, 40)
    second = replace(second, op="Linear", between=True)
    own = replace(second, what=ISOLATED)
    text = " ".join(said(record(first, second, own, output(2), ran=RAN)))
    assert "first diverges between v0 (agree) and net.v1  (Linear)" in text
    assert "what net.v1 itself reads was not compared" in text
    assert "local error" not in text


def test_beside_nan_there_are_no_floors_of_what_is_finite(said):
    rows = list(chain(1, 2))
    expected = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(2, 8)
    actual = expected.copy()
    actual[1, 3] = np.nan
    broken = compare(expected=expected, actual=actual, floor_rms=1e-3)
    rows[1] = replace(rows[1], comparison=broken)
    own = [alone(rows[:1], 1)[0], replace(rows[1], what=ISOLATED)]

    text = "\n".join(said(record(*rows, *own, output(2), ran=RAN)))

    assert "nonfinite: 1 of 16 values are not finite" in text
    assert "the reference's own inputs give the same" in text
    assert "0 floors" not in text


def test_the_nodes_of_a_cluster_are_named(said):
    cases = [f"unet/mnn/v{at}" for at in range(3)]
    nodes = ("host a1", "host b2", "host a1")
    records = [
        record(case=case, node=node) for case, node in zip(cases, nodes, strict=True)
    ]
    assert " ran on host a1 (2 cases), host b2 (1 case)" in said(*records)
    assert not [line for line in said(record()) if line.startswith(" ran on")]
