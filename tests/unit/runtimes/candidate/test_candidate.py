"""A runtime's value is compared with the right value of the reference."""

import numpy as np
import pytest

from harness.core.entry import check_artifact
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import Probe, ValueKind
from harness.engine.deployed import Reading
from harness.engine.store import Store
from harness.measure.trace import OUTPUT, TraceWriter, open_trace
from harness.runtimes.candidate import candidate

RNG = np.random.default_rng(0)
TOKENS = RNG.normal(size=(2, 3, 8)).astype(np.float32)
TRUTH = np.array([True, False, True])
MASK = np.array([0.0, -3.4e38, 0.0], dtype=np.float32)


def probe(name, position, kind=ValueKind.COMPUTE):
    return Probe(
        name=name,
        position=position,
        kind=kind,
        op="aten.linear.default",
        module="mid.proj",
        source="net.py:1",
        onnx=f"val_{name}",
        parents=("conv2d",),
    )


PROBES = [
    probe("tokens", 0),
    probe("truth", 1),
    probe("mask", 2),
    probe("view", 3, ValueKind.MOVE),
    probe("unseen", 4),
]


@pytest.fixture
def reading(tmp_path):
    def record(folder):
        writer = TraceWriter(folder)
        writer.add(OUTPUT + "out", TOKENS)
        writer.add("tokens", TOKENS)
        writer.add("truth", TRUTH)
        writer.add("mask", MASK, is_mask=True)
        values = writer.close({"tokens": 1e-3, OUTPUT + "out": 1e-3})
        return {"values": values, "rewrite_max_abs": 0.0}

    entry = Store(root=tmp_path).make("reference", {"one": 1}, record)
    return Reading(sample="realistic-0", inputs=entry, reference=entry, layers=True)


@pytest.fixture
def watcher(reading):
    trace = open_trace(reading.reference.path)
    return candidate.Watcher(reading.sample, trace, PROBES)


def test_only_recorded_values_that_compute_are_wanted(watcher):
    assert watcher.sizes == {
        "val_tokens": TOKENS.nbytes,
        "val_truth": TRUTH.nbytes,
        "val_mask": MASK.nbytes,
    }


def test_a_value_is_compared_under_the_programs_name(watcher):
    watcher.on_value("val_tokens", TOKENS + np.float32(0.5))
    (row,) = watcher.rows()
    assert (row.probe, row.position, row.module) == ("tokens", 0, "mid.proj")
    assert row.parents == ("conv2d",)
    assert row.comparison.max_abs == pytest.approx(0.5, rel=1e-6)
    assert row.comparison.floor_multiple == pytest.approx(500, rel=1e-5)
    assert watcher.compared == {"val_tokens"}


@pytest.mark.parametrize(
    ("described", "elements", "in_words"),
    [(32, 1000, 2), (1, 1000, 1), (0, 1000, 0), (32, 1, 1)],
)
def test_the_first_errors_are_in_words(
    reading, monkeypatch, described, elements, in_words
):
    monkeypatch.setattr(candidate, "DESCRIBED", described)
    monkeypatch.setattr(candidate, "LOOKED_AT", elements)
    trace = open_trace(reading.reference.path)
    watcher = candidate.Watcher(reading.sample, trace, PROBES)
    watcher.on_value("val_tokens", np.zeros_like(TOKENS))
    watcher.on_value("val_mask", np.zeros_like(MASK))
    assert [bool(row.looks) for row in watcher.rows()].count(True) == in_words


def test_rows_are_in_the_order_of_the_program(watcher):
    watcher.on_value("val_mask", MASK)
    watcher.on_value("val_tokens", TOKENS)
    assert [row.probe for row in watcher.rows()] == ["tokens", "mask"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("val_tokens__matmul_converted", TOKENS.reshape(6, 8, 1, 1)),
        ("val_truth", TRUTH.astype(np.int32)),
        ("val_mask", np.array([0.0, -1e9, 0.0], dtype=np.float32)),
    ],
    ids=["row-by-row-from-mnn", "truth-as-numbers", "mask-far-below"],
)
def test_a_value_in_another_form_is_the_same_value(watcher, name, value):
    watcher.on_value(name, value)
    (row,) = watcher.rows()
    assert row.comparison.max_abs == 0


def test_a_boolean_output_may_be_numbers_of_0_and_1(reading, tmp_path):
    writer = TraceWriter(tmp_path)
    writer.add(OUTPUT + "truth", TRUTH)
    writer.close({})
    (row,) = candidate.output_rows(
        reading.sample, {"truth": TRUTH.astype(np.int32)}, open_trace(tmp_path)
    )
    assert (row.comparison.actual_dtype, row.comparison.max_abs) == ("bool", 0.0)


def test_equal_infinite_outputs_are_no_stale_buffer(reading, tmp_path):
    writer = TraceWriter(tmp_path)
    writer.add(OUTPUT + "out", TOKENS)
    writer.close({OUTPUT + "out": 1e-3})
    for held, stale in ((np.inf, False), (2.0, True)):
        made = {"out": np.full_like(TOKENS, held)}
        (row,) = candidate.output_rows(
            reading.sample, made, open_trace(tmp_path), [made]
        )
        assert (row.looks == candidate.STALE) == stale


def test_an_output_has_one_position_in_all_samples(reading, tmp_path):
    """The value with the earliest position in any sample is said to diverge first."""
    positions = []
    for layers in ((), ("tokens", "scores")):
        folder = tmp_path / str(len(layers))
        folder.mkdir()
        writer = TraceWriter(folder)
        for name in (*layers, OUTPUT + "truth"):
            writer.add(name, TRUTH)
        writer.close({})
        made = {"truth": TRUTH}
        (row,) = candidate.output_rows(reading.sample, made, open_trace(folder))
        positions.append(row.position)

    assert positions == [0, 0]


def test_a_complex_value_is_not_compared(reading, tmp_path):
    """An exporter writes it as pairs of real numbers."""
    writer = TraceWriter(tmp_path)
    writer.add("tokens", TOKENS.astype(np.complex64))
    writer.close({})
    assert candidate.Watcher(reading.sample, open_trace(tmp_path), PROBES).sizes == {}


def test_another_order_of_axes_is_a_shape_and_not_a_number(watcher):
    watcher.on_value("val_tokens", np.ascontiguousarray(TOKENS.transpose(0, 2, 1)))
    (row,) = watcher.rows()
    assert row.comparison.expected_shape == (2, 3, 8)
    assert row.comparison.actual_shape == (2, 8, 3)


def test_a_mask_that_masks_something_else_is_seen(watcher):
    watcher.on_value("val_mask", np.array([0.0, 0.0, -1e9], dtype=np.float32))
    (row,) = watcher.rows()
    assert row.comparison.max_abs > 1e4


@pytest.fixture
def scores_compared(tmp_path):
    """Compares scores to which a mask was added, of 12 tokens that see none later."""

    def compared(expected, actual, deep, is_mask):
        hidden = np.triu(np.full((12, 12), np.float32(deep)), 1)
        writer = TraceWriter(tmp_path)
        writer.add("tokens", expected + hidden, is_mask=is_mask)
        writer.close({"tokens": 1e-7})
        watcher = candidate.Watcher("s-0", open_trace(tmp_path), PROBES)
        watcher.on_value("val_tokens", actual + hidden)
        (row,) = watcher.rows()
        return row

    return compared


SCORES = RNG.normal(size=(2, 12, 12)).astype(np.float32)
MASKS = [(-3.4028235e38, True), (-1e9, False), (-1e4, False)]


@pytest.mark.parametrize(("deep", "is_mask"), MASKS)
def test_a_mask_hides_no_error_of_the_scores_beside_it(scores_compared, deep, is_mask):
    row = scores_compared(SCORES, SCORES * np.float32(1.4), deep, is_mask)
    assert row.comparison.sqnr_db == pytest.approx(8.0, abs=0.5)  # 0.4 of the scores
    assert row.looks == "everything is 1.4 times what it should be"


@pytest.mark.parametrize(("deep", "is_mask"), MASKS)
def test_scores_beside_a_mask_that_are_right_agree(scores_compared, deep, is_mask):
    row = scores_compared(SCORES, SCORES, deep, is_mask)
    assert row.comparison.rms == 0
    assert not row.comparison.expected_constant


@pytest.mark.parametrize("far", [1.0, 40.0])
def test_a_large_activation_is_no_mask(tmp_path, far):
    """In some language models one channel of one token is a thousand times larger."""
    expected = RNG.normal(size=(2, 12, 12)).astype(np.float32)
    expected[0, 0, 3] *= 1e4 * far
    expected[0, 0, 3] = -abs(expected[0, 0, 3])
    actual = expected.copy()
    actual[0, 0, 3] *= 0.995
    writer = TraceWriter(tmp_path)
    writer.add("tokens", expected)
    writer.close({"tokens": 1e-7})
    watcher = candidate.Watcher("s-0", open_trace(tmp_path), PROBES)
    watcher.on_value("val_tokens", actual)

    (row,) = watcher.rows()
    assert row.comparison.max_abs > 1


@pytest.mark.parametrize("name", ["tokens", "val_view", "val_other", "val_tokens_1"])
def test_a_value_that_is_not_wanted_is_left_alone(watcher, name):
    watcher.on_value(name, TOKENS)
    assert watcher.rows() == []


def test_the_observers_effect_is_the_largest_difference_of_an_output():
    one = {"a": TOKENS, "b": TRUTH.astype(np.float32)}
    two = {"a": TOKENS + np.float32(0.25), "b": one["b"]}
    lost = {"a": TOKENS, "b": np.array([1.0, np.nan, 1.0], dtype=np.float32)}
    assert candidate._gap(one, one) == 0
    assert candidate._gap(one, two) == pytest.approx(0.25, rel=1e-6)
    assert candidate._gap(one, lost) == np.inf


def test_a_changed_file_is_not_handed_to_native_code(tmp_path):
    def build(folder):
        (folder / "model.mnn").write_bytes(b"weights")
        return {}

    artifact = Store(root=tmp_path).make("mnn", {"one": 1}, build)
    check_artifact(artifact)
    file = artifact.file("model.mnn")
    file.chmod(0o644)
    file.write_bytes(b"weighty")

    with pytest.raises(StageError, match=r"model\.mnn") as caught:
        check_artifact(artifact)
    assert caught.value.outcome is Outcome.LOAD


def test_a_run_that_lost_an_output_is_refused_by_its_name():
    made = {"last_hidden_state": TOKENS}
    with pytest.raises(StageError, match="pooler_output is missing") as refused:
        candidate._check_outputs(
            "model.mnn", made, ("last_hidden_state", "pooler_output")
        )
    assert refused.value.outcome is Outcome.MISSING
