"""PyTorch's own error in fewer bits: measured once, stored, and in every record."""

import pytest

from harness.core.case import Case, Device, ExportSettings, Sample, Source, Variant
from harness.core.record import LAYERS, OUTPUTS, SELF
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.recipes import describe
from harness.suite.schema import Limits
from tests.unit import nets

pytestmark = pytest.mark.slow

BF16, FP16 = SELF
SHAPES = (("batch", 2),)
SAMPLES = (
    Sample(profile="realistic", index=1, shapes=SHAPES),
    Sample(profile="unit-normal", index=0, shapes=SHAPES, layers=False),
)


def case_of(component, kind="fp32", within=(BF16,), samples=SAMPLES):
    return Case(
        component=component,
        export=ExportSettings(attention="eager"),
        variant=Variant(name=kind, backend="onnxruntime", kind=kind),
        device=Device(threads=1),
        reference=Device(threads=1),
        samples=samples,
        within=within,
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    source = Source(path=nets.small_checkpoint(folder), seed=0)
    return describe("text_encoder", "text_encoder", source)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    store = Store(root=tmp_path_factory.mktemp("store"))
    with Engine(store, Limits(timeout_s=200, jobs=1)) as made:
        yield made


@pytest.fixture(scope="module")
def record(engine, encoder):
    return engine.run(case_of(encoder, within=(BF16, FP16)))


def of(record, name):
    return {(r.sample, r.probe): r.comparison for r in record.rows if r.what == name}


def test_each_output_of_each_sample_has_a_row_in_each_dtype(record):
    outputs = of(record, OUTPUTS)
    assert record.failure is None, record.failure
    assert outputs
    assert of(record, BF16).keys() == of(record, FP16).keys() == outputs.keys()


def test_the_error_is_that_of_the_dtypes_digits(record):
    """Float16 has three bits more than bfloat16; float32 has many more."""
    for at, fp32 in of(record, OUTPUTS).items():
        bf16, fp16 = of(record, BF16)[at], of(record, FP16)[at]
        assert 3 < bf16.rms / fp16.rms < 20
        assert fp16.rms > 100 * fp32.rms
        assert 2**-12 < bf16.rms / bf16.expected_rms < 2**-4


def test_a_second_variant_reads_what_the_first_one_stored(engine, encoder, record):
    again = engine.run(case_of(encoder, "int8-weights"))
    assert record.took_s["self"] > 0
    assert "self" not in again.took_s
    assert of(again, BF16) == of(record, BF16)
    assert of(again, FP16) == {}


def test_a_case_that_does_not_ask_has_no_such_row(engine, encoder):
    plain = engine.run(case_of(encoder, within=()))
    assert {row.what for row in plain.rows} == {LAYERS, OUTPUTS}


def test_what_pytorch_cannot_run_is_one_sentence_and_loses_no_row(engine, encoder):
    mixed = describe("mixed", "tests.unit.float32_alone", encoder.source)
    made = engine.run(case_of(mixed, samples=SAMPLES[1:]))
    refused = [row for row in made.rows if row.what == BF16]
    assert made.failure is None, made.failure
    assert of(made, OUTPUTS)
    assert [row.probe for row in refused] == [""]
    assert "PyTorch cannot run mixed in bfloat16 here" in refused[0].looks
    assert "\n" not in refused[0].looks
