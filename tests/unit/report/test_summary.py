"""The summary of a finished run; the clearest failure comes first."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.core.outcome import Outcome
from harness.core.record import LAYERS
from harness.core.settings import Settings
from harness.core.text import WIDTH, case_line, screen
from harness.measure.compare import compare
from harness.report.layers import layer_lines
from harness.report.summary import summary
from tests.unit.found import verdicts_of
from tests.unit.reports import chain, output, record, row
from tests.unit.scenes import RAN, bad, failed, good


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
    assert f"{distance:.2e}  ✗" in next(line for line in lines if "net.v1" in line)
    assert verdicts[0].outcome is Outcome.EXCEEDS
    assert f"cosine distance {distance:.3e}, allowed 1.000e-04" in verdicts[0].reason
    assert verdicts[1].outcome is Outcome.WITHIN


def test_layers_of_one_sample_are_only_its_own(listed):
    made = record(*chain(1, 2, sample="s-0"), *chain(5, 6, sample="s-1"))
    lines = listed(made, sample="s-0", whats=(LAYERS,))
    assert [line.split()[0] for line in lines[4:]] == ["1", "2"]


EXCEEDS = {"parity.outcome": "exceeds"}
OWN = EXCEEDS | {"parity.own": "off by 1.6 × the model's own bfloat16"}
AT = EXCEEDS | {"parity.first_divergence": "m"}
TOLD = (
    {"layers": {"parity.outcome": "within", "parity.usage": "0.36"}},
    {"layers": AT, "outputs": {"parity.outcome": "gap"}},
    {"outputs": OWN},
    {"outputs": {"parity.outcome": "unavailable"}},
    {"outputs": {"parity.outcome": "crashed"}},
)


def test_a_case_has_one_line(snapshot):
    assert "\n".join(case_line("c", told).text for told in TOLD) == snapshot


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
