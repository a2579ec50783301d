"""The inputs and outputs of a file are matched with those of a recipe."""

from pathlib import Path

import numpy as np
import pytest

from harness.core.case import Component, ForeignModel, Source, TensorSpec
from harness.core.errors import StageError, SuiteError
from harness.core.onnx_ports import Port
from harness.core.outcome import Outcome
from harness.measure.name_map import Names
from harness.plugins.foreign.files.names import match
from harness.runtimes.renamed import fed, read

SAMPLE = TensorSpec(name="sample", shape=("batch", 4, "height", "width"), draw="normal")
STEP = TensorSpec(name="timestep", shape=(1,), dtype="int32", draw="timestep")
STATES = TensorSpec(name="states", shape=("batch", 12, 16), draw="normal")
OUT = TensorSpec(name="out", shape=("batch", 4, "height", "width"))
POOLED = TensorSpec(name="pooled", shape=("batch", 16))


def component(*names):
    return Component(
        name="net",
        recipe="unet",
        source=Source(path=Path()),
        inputs=(SAMPLE, STEP, STATES),
        outputs=(OUT, POOLED),
        foreign=ForeignModel(onnx=Path("net.onnx"), names=names),
    )


def port(name, *shape, dtype="float32"):
    return Port(name=name, dtype=dtype, shape=shape)


INPUTS = (
    port("sample", "n", 4, "h", "w"),
    port("timestep", dtype="int64"),
    port("states", "n", 12, 16),
)
OUTPUTS = (port("out", "n", 4, "h", "w"), port("pooled", "n", 16))


def laid(inputs=INPUTS, outputs=OUTPUTS, *names):
    return match(component(*names), "net.onnx", inputs, outputs)


def test_equal_names_need_no_mapping():
    names = laid()
    assert [(one.name, one.given) for one in names.inputs] == [
        (spec.name, spec.name) for spec in (SAMPLE, STEP, STATES)
    ]
    assert (names.left_out, names.extra, names.unfed) == ((), (), ())


def test_another_name_is_taken_only_where_the_suite_maps_it():
    inputs = (*INPUTS[:1], port("t", dtype="int64"), *INPUTS[2:])
    with pytest.raises(SuiteError, match='names]: timestep = "t"'):
        laid(inputs)
    assert laid(inputs, OUTPUTS, ("timestep", "t")).inputs[1].given == "timestep"


def test_two_that_may_be_one_are_not_proposed():
    inputs = (port("a", "n", 4, "h", "w"), port("b", "n", 4, "h", "w"), *INPUTS[1:])
    with pytest.raises(SuiteError, match='RECIPE_NAME = "NAME_IN_FILE"') as error:
        laid(inputs)
    assert "sample float32 [batch, 4, height, width]" in str(error.value)
    assert "a float32 [n, 4, h, w]" in str(error.value)


def test_an_input_that_the_file_lacks_is_refused_until_the_suite_says_so():
    with pytest.raises(SuiteError, match='does without is timestep = ""'):
        laid((INPUTS[0], INPUTS[2]))
    names = laid((INPUTS[0], INPUTS[2]), OUTPUTS, ("timestep", ""))
    assert names.unfed == ("timestep",)


def test_outputs_are_compared_as_far_as_they_are_there():
    names = laid(INPUTS, (OUTPUTS[0], port("hidden", "n", 8)))
    assert names.compared == {"out": "out"}
    assert (names.left_out, names.extra) == (("pooled",), ("hidden",))


MASK = port("mask", "n", 12, dtype="int64")
NOISE = port("noise", "n", 4, "h", "w")


@pytest.mark.parametrize(
    ("inputs", "outputs", "pairs", "said"),
    [
        ((*INPUTS, MASK), OUTPUTS, (), "mask is fed from nothing"),
        (INPUTS, (NOISE,), (), "no output of the file is one of the recipe"),
        (
            *(INPUTS, OUTPUTS, [("timestop", "timestep")]),
            "maps 'timestop', which the recipe 'unet' does not",
        ),
        (
            *(INPUTS, OUTPUTS, [("timestep", "t")]),
            "maps 'timestep' to 't', which net.onnx does not have",
        ),
    ],
    ids=["input-too-many", "no-known-output", "name-of-no-recipe", "name-of-no-file"],
)
def test_names_without_a_partner_are_refused(inputs, outputs, pairs, said):
    with pytest.raises(SuiteError, match=said):
        laid(inputs, outputs, *pairs)


def test_names_are_read_as_they_were_written(tmp_path):
    names = laid(INPUTS, (OUTPUTS[0], port("hidden", "n", 8)))
    names.save(tmp_path)
    assert Names.load(tmp_path) == names
    assert Names.load(tmp_path / "other") is None


def given(dtype="int32", **changes):
    feeds = {
        "sample": np.ones((2, 4, 6, 6), np.float32),
        "timestep": np.array([5], dtype),
        "states": np.ones((2, 12, 16), np.float32),
    }
    return {**feeds, **changes}


def test_a_lone_timestep_is_fed_as_a_scalar_of_the_files_kind():
    step = fed(laid(), given())["timestep"]
    assert isinstance(step, np.ndarray)
    assert (step.shape, step.dtype.name, step.item()) == ((), "int64", 5)


def test_one_timestep_serves_a_fixed_batch():
    inputs = (INPUTS[0], port("timestep", 2), INPUTS[2])
    step = fed(laid(inputs), given())["timestep"]
    assert (step.tolist(), step.dtype.name) == ([5.0, 5.0], "float32")


@pytest.mark.parametrize("batch", ["batch", "s77", "n"])
def test_one_timestep_serves_the_batch_that_the_file_declares(batch):
    sample = port("sample", batch, 4, "h", "w")
    inputs = (sample, port("timestep", batch), INPUTS[2])
    assert fed(laid(inputs), given())["timestep"].tolist() == [5.0, 5.0]


def test_a_table_that_serves_all_items_is_repeated_for_the_declared_batch():
    inputs = (port("sample", "n", 4, "h", "w"), INPUTS[1], port("states", "n", 12, 16))
    one = np.ones((1, 12, 16), np.float32)
    assert fed(laid(inputs), given(states=one))["states"].shape == (2, 12, 16)


@pytest.mark.parametrize("axis", ["steps", "?", ""])
def test_an_axis_that_no_other_input_has_keeps_its_size(axis):
    sample = port("sample", "n" if axis == "steps" else axis, 4, "h", "w")
    inputs = (sample, port("timestep", axis), INPUTS[2])
    assert fed(laid(inputs), given())["timestep"].tolist() == [5.0]


def test_float16_inputs_are_rounded():
    inputs = (port("sample", "n", 4, "h", "w", dtype="float16"), *INPUTS[1:])
    assert fed(laid(inputs), given())["sample"].dtype == np.float16


def test_a_number_that_the_files_kind_does_not_hold_is_refused():
    half = given(timestep=np.array([5.5], np.float32))
    with pytest.raises(StageError, match=r"int64, which does not hold 5\.5") as error:
        fed(laid(), half)
    assert error.value.outcome is Outcome.DTYPE


def test_a_size_that_the_file_fixes_is_refused():
    inputs = (port("sample", 1, 4, "h", "w"), *INPUTS[1:])
    with pytest.raises(StageError, match=r"\[1, 4, 'h', 'w'\] in the file") as error:
        fed(laid(inputs), given())
    assert error.value.outcome is Outcome.SHAPE


def test_outputs_are_read_by_the_recipes_names():
    outputs = (port("noise", "n", 4, "h", "w"), port("hidden", "n", 8))
    names = laid(INPUTS, outputs, ("out", "noise"))
    made = {"noise": np.ones(2), "hidden": np.zeros(2)}
    assert list(read(names, made)) == ["out"]


@pytest.mark.parametrize("pair", [("timestep", "sample"), ("pooled", "out")])
def test_two_names_for_one_of_the_file_are_refused(pair):
    with pytest.raises(SuiteError, match=f"both stand for '{pair[1]}'"):
        laid(INPUTS, OUTPUTS, pair)
