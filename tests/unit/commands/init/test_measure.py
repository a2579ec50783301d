"""`parity init` writes the variants that were seen to agree, and never half a suite."""

from pathlib import Path

from harness.commands.init import measure as module
from harness.commands.init.measure import measure, measure_into
from harness.commands.init.render import no_variant
from harness.commands.init.write import write_suite
from harness.core.settings import Settings
from harness.suite.judge import Judge
from harness.suite.suite import load_suite

BERT = Path(__file__).parents[4] / "fixtures" / "text_tasks" / "bert"


def test_without_time_only_fp32_is_written(tmp_path):
    measured = measure(BERT, str(tmp_path / "store"), budget_s=0)

    for variants in measured.choice.variants.values():
        for is_run, words in variants.values():
            assert (is_run, words.split(";")[0]) == (False, "not measured")


def test_a_component_without_time_leaves_out_what_was_not_measured(tmp_path):
    choice = no_variant()
    choice.variants["mnn"]["deploy"] = (True, "agreed")
    choice.only.update(vae_decoder=["fp32"], text_encoder=["fp32"])
    write_suite(BERT.parents[1] / "digits", tmp_path, choice=choice)
    suite = load_suite(tmp_path)
    Judge.of(suite, Settings())
    run = {case.component.name for case in suite.cases if case.variant.name != "fp32"}

    assert run == {"unet", "controlnet", "controlled_unet", "vae_encoder"}


def test_stopped_in_the_middle_the_suite_stays_whole(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    write_suite(BERT, tmp_path)
    before = (tmp_path / "parity.toml").read_bytes()
    monkeypatch.setattr(module, "wait", stopped)
    lines: list[str] = []
    measure_into(BERT, tmp_path, str(tmp_path / "store"), lines.append)

    assert (tmp_path / "parity.toml").read_bytes() == before
    assert [line.split(":")[0] for line in lines] == ["stopped"]
