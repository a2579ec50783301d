"""What a mask takes out, by the axes of inputs and outputs."""

from pathlib import Path

import numpy as np
import pytest

from harness.core.case import Component, Source, TensorSpec
from harness.measure.unread import is_mask, other_padding, taken_out, without

IDS = TensorSpec(
    name="input_ids", shape=("batch", "tokens"), dtype="int32", draw="tokens"
)
MASK = TensorSpec(name="attention_mask", shape=("batch", "tokens"), draw="mask")
STATES = TensorSpec(name="states", shape=("batch", "tokens", 4))
VECTOR = TensorSpec(name="vector", shape=("batch", 4))

LEFT = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
RIGHT = LEFT[:, ::-1]
HOLES = np.array([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1]])


def component(*inputs, outputs=(STATES, VECTOR)):
    return Component(
        name="net",
        recipe="default",
        source=Source(path=Path()),
        inputs=inputs,
        outputs=outputs,
    )


def feeds(mask, ids=None):
    ids = np.arange(10).reshape(2, 5) if ids is None else ids
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("mask", [LEFT, RIGHT, HOLES], ids=["left", "right", "holes"])
def test_rows_of_padding_are_taken_out_of_an_output_with_the_masks_axes(mask):
    found = taken_out(component(IDS, MASK), feeds(mask))
    assert list(found) == ["states"]
    assert np.array_equal(found["states"][..., 0], mask == 0)


def test_an_output_that_is_read_whole_has_no_such_rows():
    assert not taken_out(component(IDS, MASK), feeds(np.ones((2, 5))))


def test_a_text_of_padding_alone_is_taken_out_whole():
    assert taken_out(component(IDS, MASK), feeds(np.zeros((2, 5))))["states"].all()


def test_axes_of_size_one_of_a_mask_do_not_count():
    spec = TensorSpec(name="m", shape=("batch", 1, 1, "tokens"), draw="mask")
    mask = LEFT.reshape(2, 1, 1, 5)
    found = taken_out(component(IDS, spec), {**feeds(mask), "m": mask})
    assert np.array_equal(found["states"][..., 0], LEFT == 0)


def test_a_mask_of_queries_and_keys_takes_out_a_query_that_sees_no_key():
    spec = TensorSpec(name="m", shape=("batch", "tokens", "tokens"), draw="mask")
    causal = np.tril(np.ones((5, 5))) * LEFT[:, None, :]
    found = taken_out(component(IDS, spec), {**feeds(LEFT), "m": causal})
    assert np.array_equal(found["states"][..., 0], LEFT == 0)


@pytest.mark.parametrize(
    ("about", "mask"),
    [
        ({"name": "a", "draw": "mask"}, True),
        ({"name": "attention_mask", "dtype": "int64"}, True),
        ({"name": "key_mask", "dtype": "bool", "draw": "pipeline"}, True),
        ({"name": "attention_mask", "draw": "normal"}, False),
        ({"name": "score_mask"}, False),
        ({"name": "input_ids", "dtype": "int64"}, False),
    ],
)
def test_a_mask_is_known_by_its_kind_or_by_name_and_dtype(about, mask):
    assert is_mask(TensorSpec(shape=("batch", "tokens"), **about)) is mask


@pytest.mark.parametrize("mask", [LEFT, RIGHT, HOLES], ids=["left", "right", "holes"])
def test_other_padding_differs_at_padding_alone_and_stays_in_the_vocabulary(mask):
    given = feeds(mask)
    changed = other_padding(component(IDS, MASK), given)
    assert changed is not None
    ids = changed["input_ids"]
    assert np.array_equal(ids != given["input_ids"], mask == 0)
    assert set(ids.flat) <= set(given["input_ids"].flat)


def test_there_is_no_other_padding_where_all_is_read():
    assert other_padding(component(IDS, MASK), feeds(np.ones((2, 5)))) is None


def test_padding_of_states_changes_too():
    spec = TensorSpec(name="x", shape=("batch", "tokens", 4), draw="normal")
    given = {"x": np.ones((2, 5, 4), np.float32), "attention_mask": LEFT}
    changed = other_padding(component(spec, MASK), given)
    assert changed is not None
    assert np.array_equal((changed["x"] != given["x"]).all(-1), LEFT == 0)


def test_a_value_without_the_axes_that_a_file_declares_is_read_whole():
    unread = np.array([[False, True, True], [False, False, True]])
    pooled, tokens = np.ones((2, 8), np.float32), np.ones((2, 3), np.float32)
    assert without(unread, pooled)[0].sum() == 16
    assert without(unread, tokens)[0].sum() == 3
