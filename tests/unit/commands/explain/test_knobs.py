"""Knobs turn cases, and the lines that they offer make the same case again."""

from __future__ import annotations

import shutil
import tomllib

import pytest
import tomlkit

from harness.commands.explain.knobs import knobs_of, pairs_of, together, toml_of
from harness.suite.suite import load_suite
from tests.unit.nets import DIGITS

SUITE = load_suite(DIGITS)
CASES = {case.id: case for case in SUITE.cases}
SHOWN = (
    "text_encoder/mnn/fused",
    "unet/mnn/deploy",
    "unet/mnn/int4-weights",
    "vae_decoder/mnn/fp32",
    "unet/onnxruntime/fp32",
    "unet/onnxruntime/fp16",
)
KNOBS = [
    (case, knob, at)
    for case in SHOWN
    for at, knob in enumerate(
        turned
        for coarse in knobs_of(CASES[case], ["sin"])
        for turned in (coarse, *coarse.finer[:2])
    )
]


@pytest.mark.parametrize(
    ("case", "knob"),
    [pytest.param(case, knob, id=f"{case}-{at}") for case, knob, at in KNOBS],
)
def test_the_lines_that_a_knob_offers_make_the_case_that_it_turned(
    tmp_path, case, knob
):
    before = CASES[case]
    after = knob.turn(before)
    offered = tomllib.loads("\n".join(toml_of(before, after)))
    suite = tmp_path / "suite"
    left_out = shutil.ignore_patterns("*.safetensors", "worst_inputs.toml")
    shutil.copytree(DIGITS, suite, ignore=left_out)
    written = tomlkit.loads((suite / "parity.toml").read_text())
    del written["pipeline"]  # pipelines name variants that one of its own replaces
    merged = merge(written, offered)
    for own in merged.get("variant", {}).get(before.backend, {}):
        if own.endswith("-mended"):
            merged["backend"][before.backend]["variants"].append(own)
    (suite / "parity.toml").write_text(tomlkit.dumps(merged))

    made = [
        found
        for found in load_suite(suite).cases
        if found.subject == before.subject
        and (found.device, found.export) == (after.device, after.export)
        and (found.variant.kind, found.variant.flags)
        == (after.variant.kind, after.variant.flags)
    ]

    assert made, offered
    assert after != before


def merge(into, offered):
    for name, value in offered.items():
        if isinstance(value, dict) and name in into:
            merge(into[name], value)
        else:
            into[name] = value
    return into


def test_two_knobs_together_offer_the_lines_of_both():
    case = CASES["vae_decoder/mnn/fp32"]
    one, two = list(knobs_of(case, []))[:2]
    both = together(one, two)

    offered = tomllib.loads("\n".join(toml_of(case, both.turn(case))))

    names = {one.name.partition(" =")[0], two.name.partition(" =")[0]}
    assert set(offered["backend"]["mnn"]["hints"]) == names


def test_another_exporter_with_another_attention_is_one_pair_whatever_helped():
    case = CASES["text_encoder/onnxruntime/fp32"]
    knobs = {knob.name: knob for knob in knobs_of(case, [])}
    both = 'exporter = "torchscript" and attention = "sdpa"'
    helped = [knobs[name] for name in both.split(" and ")]

    assert [pair.name for pair in pairs_of(case, [])] == [both]
    assert [pair.name for pair in pairs_of(case, helped)] == [both]


def test_a_network_without_text_has_no_attention_to_pair_an_exporter_with():
    assert not list(pairs_of(CASES["unet/onnxruntime/fp32"], []))


def test_a_knob_that_is_turned_already_is_not_offered():
    case = CASES["vae_decoder/mnn/fp32"]
    first = next(knobs_of(case, []))

    names = [knob.name for knob in knobs_of(first.turn(case), [])]

    assert first.name not in names


def test_float16_keeps_what_it_would_lose_before_it_is_given_up():
    case = CASES["unet/onnxruntime/fp16"]
    offered = list(knobs_of(case, ["sin"], ["mul_9", "sin"]))

    assert offered[0].name == "--keep=mul_9,sin"
    assert offered[0].turn(case).variant.flags == ("--keep=mul_9,sin",)
    assert offered[0].wide, "an excerpt around one value does not show the others"
    assert [knob.name for knob in offered if knob.gives_up] == ["fp32 for fp16"]
    exact = knobs_of(CASES["unet/onnxruntime/fp32"], [], ["mul_9"])
    assert not any("--keep" in knob.name for knob in exact)


def test_each_runtime_is_offered_its_own_knobs():
    mnn = {knob.name for knob in knobs_of(CASES["unet/mnn/deploy"], [])}
    ort = {knob.name for knob in knobs_of(CASES["unet/onnxruntime/fp32"], [])}

    assert "--useGeluApproximation=0" in mnn
    assert "winograd_memory_level = 0" in mnn
    assert "optimization = 0" in ort
    assert not any(name.startswith("--") for name in ort)
