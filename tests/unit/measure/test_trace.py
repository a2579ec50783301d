"""`harness.measure.trace`: values on disk are equal to the recorded values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import StoreError
from harness.measure.trace import INDEX, VALUES, TraceWriter, open_trace

RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "conv2d": RNG.normal(size=(2, 3, 4)).astype(np.float32),
    "truth": np.array([True, False, True]),
    "double": RNG.normal(size=(3,)),
    "ids": np.arange(7, dtype=np.int64),
    "scalar": np.float32(2.5),
    "empty": np.empty((0, 4), dtype=np.float32),
    "strided": RNG.normal(size=(4, 6)).astype(np.float32).T[::2],
    "half": RNG.normal(size=(5,)).astype(np.float16),
    "odd": np.array([np.nan, np.inf, -0.0], dtype=np.float32),
}


@pytest.fixture
def recorded(tmp_path):
    writer = TraceWriter(tmp_path)
    for name, value in ARRAYS.items():
        writer.add(name, np.asarray(value), is_mask=name == "odd")
    writer.close({"conv2d": 1e-8})
    return tmp_path


def test_a_trace_gives_back_every_bit(recorded):
    trace = open_trace(recorded)
    assert list(trace) == list(ARRAYS)
    for name, value in ARRAYS.items():
        assert trace[name].dtype == np.asarray(value).dtype
        assert trace[name].shape == np.shape(value)
        assert trace[name].tobytes() == np.asarray(value).tobytes()


def test_a_trace_knows_noise_and_masks(recorded):
    trace = open_trace(recorded)
    assert trace.floor_rms("conv2d") == 1e-8
    assert trace.floor_rms("truth") is None
    assert [name for name in trace if trace.places[name].is_mask] == ["odd"]
    assert "conv2d" in trace
    assert "conv" not in trace


def test_a_recorded_value_cannot_be_changed(recorded):
    with pytest.raises(ValueError, match="read-only"):
        open_trace(recorded)["conv2d"][0] = 1


def test_values_can_be_read_while_others_are_written(tmp_path):
    writer = TraceWriter(tmp_path)
    writer.add("one", ARRAYS["conv2d"])
    view = writer.view()
    writer.add("two", ARRAYS["double"])
    assert writer.close({}) == 2
    assert np.array_equal(view["one"], ARRAYS["conv2d"])
    assert "two" not in view


def test_values_without_elements_can_be_read_while_others_are_written(tmp_path):
    writer = TraceWriter(tmp_path)
    writer.add("none", np.empty((2, 0), dtype=np.float32))
    view = writer.view()
    writer.close({})
    assert view["none"].shape == (2, 0)


def test_values_of_equal_bytes_share_them(tmp_path):
    value = ARRAYS["conv2d"]
    writer = TraceWriter(tmp_path)
    writer.add("conv2d", value)
    writer.add("reshaped", value.reshape(6, 4))
    writer.add("as integers", value.view(np.int32))
    writer.close({})
    trace = open_trace(tmp_path)

    assert (tmp_path / VALUES).stat().st_size == value.nbytes
    assert np.array_equal(trace["reshaped"], value.reshape(6, 4))
    assert np.array_equal(trace["as integers"], value.view(np.int32))


def test_a_name_is_recorded_once(tmp_path):
    writer = TraceWriter(tmp_path)
    writer.add("conv2d", ARRAYS["conv2d"])
    with pytest.raises(StoreError, match="'conv2d' is recorded twice"):
        writer.add("conv2d", ARRAYS["conv2d"])
    writer.close({})


def test_values_do_not_share_a_cache_line(recorded):
    places = json.loads((recorded / INDEX).read_text(encoding="utf-8")).values()
    assert all(place["offset_bytes"] % 64 == 0 for place in places)


def test_a_trace_of_nothing_can_be_opened(tmp_path):
    assert TraceWriter(tmp_path).close({}) == 0
    assert list(open_trace(tmp_path)) == []


def slot(**changes: Any) -> Callable[[Path], object]:
    """Return what writes an index of one value with something wrong in it."""
    told = {"dtype": "float32", "shape": [2], "offset_bytes": 0} | changes
    return lambda folder: (folder / INDEX).write_text(json.dumps({"conv": told}))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda folder: (folder / INDEX).unlink(), id="no-index"),
        pytest.param(lambda folder: (folder / VALUES).unlink(), id="no-values"),
        pytest.param(lambda folder: (folder / INDEX).write_text("{"), id="no-json"),
        pytest.param(slot(shape=[-1]), id="negative-size"),
        pytest.param(slot(shape=3), id="no-shape"),
        pytest.param(slot(offset_bytes=-8), id="negative-offset"),
        pytest.param(slot(offset_bytes="8"), id="text-for-a-number"),
        pytest.param(slot(dtype="object"), id="objects"),
        pytest.param(slot(dtype="i4,i4"), id="parts"),
        pytest.param(slot(dtype="nonsense"), id="no-dtype"),
        pytest.param(slot(floor_rms=-1.0), id="negative-floor"),
        pytest.param(
            lambda folder: (folder / INDEX).write_text("[" * 100_000), id="too-deep"
        ),
    ],
)
def test_what_cannot_be_read_says_what_to_do(recorded, spoil):
    spoil(recorded)
    with pytest.raises(StoreError, match=r"no readable trace.*parity store verify"):
        open_trace(recorded)


@pytest.mark.parametrize("kept", [0, 10])
def test_values_that_were_cut_short_are_named(recorded, kept):
    data = (recorded / VALUES).read_bytes()
    (recorded / VALUES).write_bytes(data[:kept])
    with pytest.raises(StoreError, match="shorter"):
        open_trace(recorded)
