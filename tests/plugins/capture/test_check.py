"""From a live module to a verdict: the engine, the run and the screen of a suite."""

import subprocess
import sys

import pytest
import torch

import harness
from harness.core.case import LIVE
from harness.core.errors import SpecError
from harness.core.outcome import Outcome
from harness.plugins.capture.live import keep
from tests.plugin.project import called
from tests.plugins.capture import nets

ORT = ["onnxruntime"]


def outcomes(verdict):
    return {one.outcome for one in verdict.verdicts}


def test_a_nested_module_agrees_and_its_run_is_there(place):
    batch = nets.Batch(torch.randn(2, 8), 2.0, "a")
    verdict = harness.check(
        nets.Nested().eval(), {"batch": batch, "more": [torch.randn(2, 16)]}, seeds=1
    )
    verdict.require()
    report = harness.load_report(place / "reports" / "runs", "last")
    record = next(iter(report.records.values()))

    assert {case.case for case in report.records.values()} == {
        "nested/onnxruntime/fp32",
        "nested/mnn/fp32",
    }
    assert {row.sample for row in record.rows} == {"realistic-0", "realistic-1"}
    assert "2 of 2 cases agree with PyTorch." in str(verdict)
    assert "<td>nested/mnn/fp32</td>" in verdict._repr_html_()


def test_a_store_that_is_not_there_yet_keeps_a_module(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "of" / "mine"))

    assert keep(torch.nn.Linear(3, 4).eval()).startswith(LIVE)


def test_a_store_that_others_can_write_keeps_no_module(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITY_STORE", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(SpecError, match="only you can write"):
        keep(torch.nn.Linear(3, 4).eval())


@pytest.mark.usefixtures("place")
def test_a_module_that_does_not_agree_fails_a_test_and_can_be_cut_out(place):
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
    verdict = harness.check(
        net,
        (torch.randn(2, 64),),
        runtimes=["mnn"],
        variants=["int4-weights"],
        tier="standard",
    )
    with pytest.raises(AssertionError) as caught:
        verdict.require()

    assert verdict.code == 1
    assert str(caught.value) == str(verdict)
    assert "first diverges" in str(verdict)
    case, suite = verdict.verdicts[0].case, str(verdict.run / "sequential")
    # MNN fuses the ReLU away, so the excerpt is compared as an output alone.
    called(place, "repro", case, "--suite", suite).check(0, "operators around")


@pytest.mark.usefixtures("place")
def test_hidden_states_that_transformers_collects_by_hooks_are_outputs():
    import transformers

    config = transformers.Qwen3Config(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8, use_cache=False,
    )  # fmt: skip
    net = transformers.Qwen3Model(config).eval()
    ids = {"input_ids": torch.tensor([[1, 2, 3]]), "output_hidden_states": True}
    verdict = harness.check(net, ids, runtimes=ORT)
    with torch.no_grad():
        made = net(**ids)

    assert outcomes(verdict) == {Outcome.WITHIN}
    assert {"hidden_states.0", "hidden_states.1"} <= set(
        verdict.calls["qwen3model"].calls[0].outputs
    )
    assert len(made.hidden_states) == 2


@pytest.mark.usefixtures("place")
def test_torchscript_exports_outputs_that_have_a_number_alone():
    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            hidden = self.linear(x).relu()
            return hidden @ hidden.T, hidden.cos()

    verdict = harness.check(
        Pair().eval(), (torch.randn(2, 4),), runtimes=ORT, exporter="torchscript"
    )

    assert outcomes(verdict) == {Outcome.WITHIN}
    assert list(verdict.calls["pair"].calls[0].outputs) == ["0", "1"]


@pytest.mark.usefixtures("place")
def test_a_value_in_bfloat16_is_left_out_and_the_rest_is_compared():
    class Rounds(torch.nn.Module):
        def forward(self, x):
            return (x * 2).to(torch.bfloat16).float() + 1

    verdict = harness.check(Rounds().eval(), (torch.randn(2, 4),), runtimes=ORT)

    assert outcomes(verdict) == {Outcome.WITHIN}


def test_a_named_open_axis_is_run_at_other_sizes(place):
    verdict = harness.check(
        torch.nn.Linear(4, 3).eval(),
        (torch.randn(2, 4),),
        dynamic_shapes={"input": {0: torch.export.Dim("items")}},
        runtimes=ORT,
    )
    verdict.require()
    record = next(
        iter(harness.load_report(place / "reports/runs", "last").records.values())
    )

    assert {sizes["items"] for sizes in record.sizes.values()} >= {2, 4}


@pytest.mark.usefixtures("place")
def test_a_module_in_half_precision_is_tested_in_float32():
    net = torch.nn.Linear(4, 3).eval().half()
    harness.check(net, (torch.randn(2, 4).half(),), runtimes=ORT).require()


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (nets.wrong_sign, "before any exporter has run"),
        (nets.nothing, "changes nothing of the network"),
        (nets.raises, "failed: KeyError"),
        (nets.other_weights, "changes the weight linear.weight"),
        (nets.for_all, "changes the reference too"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_wrong_patch_has_an_outcome_of_its_own(patch, words):
    verdict = harness.check(
        nets.Rotary().eval(), (torch.randn(2, 8),), runtimes=ORT, patch=patch
    )

    assert outcomes(verdict) == {Outcome.PATCH}
    assert words in verdict.verdicts[0].reason


@pytest.mark.usefixtures("place")
def test_a_right_patch_is_named_with_what_it_changes():
    verdict = harness.check(
        nets.Rotary().eval(),
        (torch.randn(2, 8),),
        runtimes=ORT,
        patch="tests.plugins.capture.nets:real_rotary",
    )
    verdict.require()

    said = " ".join(str(verdict).split())
    assert "has the patch tests.plugins.capture.nets:real_rotary, which moves" in said


SCRIPT = """
import torch, harness

class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)

torch.manual_seed(0)
harness.check(Mine().eval(), (torch.randn(2, 4),), runtimes=["onnxruntime"]).require()
print("it agrees")
"""


def test_a_class_of_a_script_without_a_guard_is_checked_and_found_again(place):
    (place / "script.py").write_text(SCRIPT)
    runs = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "script.py"], capture_output=True, text=True, check=False
        )
        assert ran.stdout.endswith("it agrees\n"), ran.stderr
        runs.append(harness.load_report(place / "reports/runs", "last"))
    made = [
        next(iter(run.records.values())).artifacts["onnx"]["digest"] for run in runs
    ]

    assert made[0] == made[1]


def test_a_saved_suite_has_the_same_cases_and_agrees(place):
    verdict = harness.check(
        "tests.plugins.capture.nets:Rotary", (torch.randn(2, 8),), runtimes=ORT
    )
    verdict.save("suite")
    again = harness.load_suite(place / "suite")

    assert [case.id for case in again.tested] == ["rotary/onnxruntime/fp32"]
    assert {case.case for case in verdict.verdicts} == {"rotary/onnxruntime/fp32"}


def test_a_class_of_one_process_is_not_saved_without_a_name(place):
    class Here(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = torch.nn.Linear(4, width)

        def forward(self, x):
            return self.linear(x)

    net = Here(3).eval()
    with harness.capture(net=net) as calls:
        net(torch.randn(2, 4))
    verdict = harness.check(calls, runtimes=ORT)
    verdict.require()
    with pytest.raises(harness.ParityError, match=r"how a .*Here is made again"):
        verdict.save("suite")

    assert not (place / "suite").exists()
