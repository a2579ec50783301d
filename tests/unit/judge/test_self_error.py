"""A tolerance of the model's own error in fewer bits, judged by numbers alone."""

from dataclasses import replace
from datetime import date

import pytest
from msgspec.structs import replace as changed

from harness.core.comparison import Comparison
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.core.record import OUTPUTS
from harness.judge.case import judge_case
from harness.judge.tolerance import Tolerance
from tests.unit.reports import output, policy_of, record

BF16, FP16 = "self-bf16", "self-fp16"
WITHIN = """\
[mnn.fp32]
outputs = { within = "self-bf16" }
why = "no worse than the model's own bfloat16"
"""
PROBES = """\
[mnn.fp32]
outputs = "standard"

[unet.mnn.fp32.probes."sam*"]
outputs = { tier = "standard", within = "self-fp16" }
"""


@pytest.fixture
def load(tmp_path):
    return lambda text=WITHIN: policy_of(tmp_path, text)


def own(floors, name=BF16, **about):
    """PyTorch's own error, in the unit in which `output` has its error."""
    return replace(output(floors, **about), what=name)


def judged(policy, *rows):
    return judge_case(
        record(*rows), OUTPUTS, policy, (), min_coverage=0, today=date(2026, 1, 1)
    )


@pytest.mark.parametrize(
    ("floors", "outcome", "usage"),
    [(4, Outcome.WITHIN, 0.4), (10, Outcome.WITHIN, 1.0), (12, Outcome.EXCEEDS, 1.2)],
)
def test_an_error_may_be_as_large_as_the_models_own(load, floors, outcome, usage):
    verdict = judged(load(), output(floors), own(10))
    assert verdict.outcome is outcome
    assert verdict.usage == pytest.approx(usage)
    assert f"{usage:.3g} × the model's own bfloat16, allowed 1" in verdict.reason
    assert verdict.reason.count("the model's own") == 1


def test_each_sample_has_its_own_limit(load):
    rows = (output(8, sample="a"), own(10, sample="a"))
    verdict = judged(load(), *rows, output(8, sample="b"), own(5, sample="b"))
    assert [one.verdict.passed for one in verdict.rows] == [True, False]
    assert verdict.own == "off by 1.6 × the model's own bfloat16"


def test_the_ratio_is_said_where_another_bound_decides(load):
    tight = WITHIN.replace("within =", "floors = 5.0, within =")
    verdict = judged(load(tight), output(4), own(10))
    assert verdict.outcome is Outcome.WITHIN
    assert "4 floors, allowed 5" in verdict.reason
    assert verdict.reason.endswith("; off by 0.4 × the model's own bfloat16")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param(own(10, FP16), "was not measured", id="another-dtype"),
        pytest.param(
            replace(
                own(10), comparison=changed(own(10).comparison, nonfinite_mismatched=3)
            ),
            "is not finite",
            id="overflow",
        ),
        pytest.param(
            replace(
                own(0),
                sample="",
                comparison=Comparison(expected_shape=()),
                looks="PyTorch cannot run unet in bfloat16 here (why)",
            ),
            "PyTorch cannot run unet in bfloat16 here (why)",
            id="refused",
        ),
    ],
)
def test_a_bound_that_was_not_measured_is_no_pass(load, row, reason):
    verdict = judged(load(), output(0.1), row)
    assert verdict.outcome is Outcome.EXCEEDS
    assert reason in verdict.reason
    assert 'within = "self-bf16" cannot be checked' in verdict.reason


def test_without_any_own_error_only_no_error_passes(load):
    assert judged(load(), output(0), own(0)).outcome is Outcome.WITHIN
    assert judged(load(), output(1), own(0)).outcome is Outcome.EXCEEDS


def test_another_table_judges_a_record_with_own_rows(load):
    plain = '[mnn.fp32]\noutputs = "quantized"\n'
    assert judged(load(plain), output(4), own(1)).outcome is Outcome.WITHIN


@pytest.mark.parametrize(
    ("text", "within"),
    [
        (WITHIN, (BF16,)),
        (WITHIN + '[unet.mnn.fp32]\noutputs = "standard"\nwhy = "floors"\n', ()),
        (WITHIN.replace("outputs", "image").replace("bf16", "fp16"), (FP16,)),
        (PROBES, (FP16,)),
        (WITHIN.replace("mnn", "onnxruntime"), ()),
    ],
)
def test_the_tables_that_decide_ask_for_the_measurement(load, text, within):
    assert load(text).within(("unet", "mnn", "fp32")) == within
    assert load(text).with_tier("strict").within(("unet", "mnn", "fp32")) == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("self-bf16", "self-bf15", "did you mean 'self-bf16'"),
        ("outputs", "layers", "within is for outputs and image; layers need another"),
        ("outputs", "latents", "within is for outputs and image"),
        ('"self-bf16"', "16", "'within' must be text in quotes, got 16"),
        ('why = "', '# "', "outputs states bounds of its own"),
    ],
)
def test_what_cannot_be_judged_is_refused(load, old, new, message):
    with pytest.raises(SuiteError, match=message) as refused:
        load(WITHIN.replace(old, new))
    assert "tolerances.toml:" in str(refused.value)


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (None, BF16, ("no within",)),
        (BF16, FP16, ("within self-bf16 for self-fp16",)),
        (FP16, BF16, ()),
        (BF16, None, ()),
    ],
)
def test_bfloat16_is_looser_than_float16(here, there, words):
    one, two = (Tolerance(floors=1.0, within=name) for name in (here, there))
    assert one.looser_bounds(two) == words
