"""`parity init` writes the variants that were seen to agree, and never half a suite."""

import pytest

from harness.core.settings import Settings
from harness.plugins.start.init import measure as module
from harness.plugins.start.init.measure import (
    SAFE,
    _choice,
    _lines,
    _Result,
    measure,
    measure_into,
)
from harness.plugins.start.init.render import no_variant
from harness.plugins.start.init.write import write_suite
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES

BERT = FIXTURES / "text_tasks" / "bert"


def test_without_time_only_fp32_is_written(tmp_path):
    choice, _ = measure(BERT, str(tmp_path / "store"), budget_s=0)

    said = {
        (is_run, words.split(";")[0])
        for variants in choice.variants.values()
        for is_run, words in variants.values()
    }
    assert said == {(False, "not measured")}


def test_a_component_without_time_leaves_out_what_was_not_measured(tmp_path):
    choice = no_variant()
    choice.variants["mnn"]["deploy"] = (True, "agreed")
    choice.only.update(vae_decoder=["fp32"], text_encoder=["fp32"])
    write_suite(DIGITS, tmp_path, choice=choice)
    suite = load_suite(tmp_path)
    Judge.of(suite, Settings())
    run = {case.component.name for case in suite.cases if case.variant.name != "fp32"}

    assert run == {"unet", "controlnet", "controlled_unet", "vae_encoder"}


def test_components_without_time_are_named_in_one_sentence():
    choice = no_variant()
    choice.only.update(vae_decoder=["fp32"], unet=["fp32", "fp16"])
    *_, said = _lines(choice, {}, took_s=60.0)

    assert said.startswith("There was no time to measure all of these in vae_decoder, ")
    assert ". " not in said


def test_stopped_in_the_middle_the_suite_stays_whole(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    write_suite(BERT, tmp_path)
    before = (tmp_path / "parity.toml").read_bytes()
    monkeypatch.setattr(module, "as_they_end", stopped)
    lines: list[str] = []
    measure_into(BERT, tmp_path, str(tmp_path / "store"), lines.append)

    assert (tmp_path / "parity.toml").read_bytes() == before
    assert [line.split(":")[0] for line in lines] == ["stopped"]


def test_what_the_user_changed_meanwhile_stays(tmp_path, monkeypatch):
    write_suite(BERT, tmp_path)

    def edited(*_):
        with (tmp_path / "tolerances.toml").open("a") as file:
            file.write("# mine\n")
        return no_variant(is_run=True), []

    before = (tmp_path / "parity.toml").read_bytes()
    monkeypatch.setattr(module, "measure", edited)
    lines: list[str] = []
    measure_into(BERT, tmp_path, str(tmp_path / "store"), lines.append)

    assert (tmp_path / "parity.toml").read_bytes() == before
    assert (tmp_path / "tolerances.toml").read_text().endswith("# mine\n")
    assert lines[0].startswith("tolerances.toml changed meanwhile, so the suite stays")


@pytest.mark.parametrize(
    ("usage", "failure", "is_written", "words"),
    [
        (0.001, "", True, "agreed, at most 1% of its bound"),
        (SAFE, "", True, "agreed, at most 80% of its bound"),
        (0.9, "", False, "agreed here with 90% of its bound, which another processor"),
        (12.0, "off by 12 times its bound", False, ": off by 12 times its bound"),
    ],
)
def test_a_variant_is_written_with_room_for_another_processor(
    tmp_path, usage, failure, is_written, words
):
    write_suite(BERT, tmp_path, choice=no_variant(is_run=True))
    cases = [
        case for case in load_suite(tmp_path).cases if case.id.endswith("mnn/deploy")
    ]
    results = {
        case.id: _Result(case=case, usage=usage, failure=failure) for case in cases
    }
    written, said = _choice(cases, results).variants["mnn"]["deploy"]

    assert written is is_written
    assert words in said


@pytest.fixture
def fp32_cases(tmp_path):
    write_suite(DIGITS, tmp_path / "before")
    return load_suite(tmp_path / "before").cases


def written(cases, failed, folder):
    """Return what the suite runs that is written where these cases failed."""
    results = {
        case.id: _Result(
            case=case, usage=0.1, failure="92% compared" if case.id in failed else ""
        )
        for case in cases
    }
    choice = _choice(cases, results)
    write_suite(DIGITS, folder, choice=choice)
    suite = load_suite(folder)
    Judge.of(suite, Settings())
    return {case.id for case in suite.cases}, list(_lines(choice, results, took_s=1.0))


FAILED = [
    {"vae_encoder/mnn/fp32"},
    {"vae_encoder/mnn/fp32", "vae_encoder/onnxruntime/fp32"},
    {"vae_encoder/mnn/fp32", "text_encoder/mnn/fp32", "unet/onnxruntime/fp32"},
]


@pytest.mark.parametrize("failed", FAILED)
def test_no_case_that_failed_is_written_as_one_that_runs(tmp_path, fp32_cases, failed):
    ran, lines = written(fp32_cases, failed, tmp_path / "after")

    assert ran == {case.id for case in fp32_cases} - failed
    text = (tmp_path / "after" / "parity.toml").read_text()
    assert text.count("92% compared") == len(failed)
    said = [line for line in lines if line.endswith("it is written behind a #.")]
    assert {line.split()[0] for line in said} == failed


def test_a_suite_in_which_nothing_agrees_is_written_and_says_so(tmp_path, fp32_cases):
    every = {case.id for case in fp32_cases}
    ran, lines = written(fp32_cases, every, tmp_path / "after")

    assert ran == every
    told = [line for line in lines if line.endswith("it is written all the same.")]
    assert {line.split()[0] for line in told} == every


def test_a_long_reason_is_written_whole(tmp_path):
    choice = no_variant()
    reason = "the converter says " + " / ".join(f"line {n}" for n in range(40))
    choice.variants["mnn"]["deploy"] = (False, reason)
    write_suite(BERT, tmp_path, choice=choice)

    text = (tmp_path / "parity.toml").read_text()
    assert reason in " ".join(text.replace("\n  # ", " ").split())
    assert max(map(len, text.splitlines())) <= 100
    load_suite(tmp_path)
