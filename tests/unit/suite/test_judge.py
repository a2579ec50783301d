"""A case asks for the measurements that its tolerances need."""

from dataclasses import replace

import pytest

from harness.core.case import GIVEN, Case, Device, ExportSettings, Sample, Variant
from harness.core.errors import SuiteError
from tests.unit import nets
from tests.unit.tunings import judge_of

WITHIN = """\
[mnn.fp32]
outputs = { tier = "standard", within = "self-fp16" }
"""
CASE = Case(
    component=nets.BLOCKS,
    export=ExportSettings(),
    variant=Variant(name="fp32", backend="mnn", kind="fp32"),
    device=Device(),
    samples=(Sample(profile="unit-normal", index=0, shapes=()),),
)


def test_a_case_asks_for_pytorchs_own_error_where_a_table_says_so(tmp_path):
    other = replace(CASE, variant=replace(CASE.variant, name="fused"))
    judge = judge_of(tmp_path, WITHIN)
    assert judge.asking(CASE).within == ("self-fp16",)
    assert judge.asking(other).within == ()


def test_a_file_without_a_pytorch_model_is_refused_before_anything_runs(tmp_path):
    given = replace(CASE, component=replace(CASE.component, recipe=GIVEN))
    with pytest.raises(SuiteError, match="blocks has no PyTorch model; state another"):
        judge_of(tmp_path, WITHIN).require([(given, "outputs")])
