"""Float32 values tell what float16 would lose, and what it would hold."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.probes import Probe, ValueKind
from harness.measure.float16 import scan
from harness.measure.trace import TraceWriter, open_trace

RNG = np.random.default_rng(0)
PLAIN = RNG.normal(size=(2, 8, 4, 4)).astype(np.float32)


def losses(folder, *values):
    """Scan values that are given as name, array, operator and parents."""
    writer = TraceWriter(folder)
    for name, array, *_ in values:
        writer.add(name, array)
    writer.close({})
    probes = [
        Probe(name=name, position=0, kind=ValueKind.COMPUTE, op=op, parents=parents)
        for name, _, op, parents in values
    ]
    return scan(probes, [open_trace(folder)])


def test_float16_holds_what_is_neither_large_nor_small(tmp_path):
    assert losses(tmp_path, ("conv", PLAIN, "aten.conv2d.default", ())) == ()


def test_a_value_beyond_65504_overflows(tmp_path):
    (loss,) = losses(tmp_path, ("conv", PLAIN * 1e5, "aten.conv2d.default", ()))
    assert loss.overflows
    assert "is beyond 65504" in loss.reason
    assert loss.keep == ("conv",)


def test_what_is_predicted_to_overflow_does(tmp_path):
    for scale in (1e4, 3e4, 1e5):
        folder = tmp_path / f"{scale:g}"
        folder.mkdir()
        value = PLAIN * np.float32(scale)
        with np.errstate(over="ignore"):
            lost = not np.isfinite(value.astype(np.float16)).all()
        found = losses(folder, ("mul", value, "aten.mul.Tensor", ()))
        assert any(loss.overflows for loss in found) == lost, scale


def test_values_too_small_for_its_bits_are_lost_in_rounding(tmp_path):
    (loss,) = losses(tmp_path, ("mul", PLAIN * 1e-7, "aten.mul.Tensor", ()))
    assert not loss.overflows
    assert "its values are too small" in loss.reason


def test_the_argument_of_a_sine_is_kept_with_it(tmp_path):
    angles = np.linspace(0, 999, 64, dtype=np.float32)
    (loss,) = losses(
        tmp_path,
        ("mul", angles, "aten.mul.Tensor", ()),
        ("sin", np.sin(angles), "aten.sin.default", ("mul",)),
    )
    assert "its argument reaches 999, rounded by up to 0.49 rad" in loss.reason
    assert loss.keep == ("mul", "sin")


def test_a_normalisation_of_large_values_is_at_risk(tmp_path):
    (loss,) = losses(
        tmp_path,
        ("conv", PLAIN * 200, "aten.conv2d.default", ()),
        ("norm", PLAIN, "aten.group_norm.default", ("conv",)),
    )
    assert loss.probe.name == "norm"
    assert not loss.overflows
    assert "if a runtime takes the variance in float16" in loss.reason


@pytest.mark.parametrize("value", [np.zeros((2, 2), np.float32), np.arange(4)])
def test_zeros_and_whole_numbers_are_nothing_to_lose(tmp_path, value):
    assert losses(tmp_path, ("x", value, "aten.add.Tensor", ())) == ()


@pytest.mark.parametrize("op", ["aten.native_group_norm.default", "GroupNormalization"])
def test_a_normalisation_is_known_by_pytorchs_name_and_by_onnxs(tmp_path, op):
    large = PLAIN * np.float32(300)
    values = ("conv", large, "Conv", ()), ("norm", PLAIN, op, ("conv",))
    (loss,) = losses(tmp_path, *values)
    assert "squared beyond 65504" in loss.reason
