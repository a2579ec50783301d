"""`harness.measure.named_arrays`: a name that comes from a file becomes no path."""

import json

import numpy as np
import pytest

from harness.core.received import DamagedError
from harness.measure.named_arrays import INDEX, load_arrays, save_arrays
from tests.places import ODD_NAMES

NUMBERS = np.arange(6, dtype=np.float16).reshape(2, 3)


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_an_array_of_any_name_comes_back(tmp_path, name):
    (tmp_path / "here").mkdir()
    save_arrays({name: NUMBERS, "x": NUMBERS + 1}, tmp_path / "here")
    loaded = load_arrays(tmp_path / "here")
    assert list(loaded) == [name, "x"]
    assert loaded[name].tobytes() == NUMBERS.tobytes()
    assert loaded[name].dtype == NUMBERS.dtype


def test_the_files_are_named_by_numbers_alone(tmp_path):
    arrays = dict.fromkeys(ODD_NAMES.values(), NUMBERS)
    save_arrays(arrays, tmp_path)
    numbered = {f"{at:03}.npy" for at in range(len(arrays))}
    assert {path.name for path in tmp_path.iterdir()} == {INDEX, *numbered}


def test_names_that_differ_by_case_alone_are_two_arrays(tmp_path):
    save_arrays({"X": NUMBERS, "x": NUMBERS + 1}, tmp_path)
    assert load_arrays(tmp_path)["x"][0, 0] == 1


@pytest.mark.parametrize("names", [["x", "x"], {"x": "../y"}, [1], "x"])
def test_an_index_that_is_none_is_refused(tmp_path, names):
    save_arrays({"x": NUMBERS, "y": NUMBERS}, tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(names), encoding="utf-8")
    with pytest.raises(DamagedError):
        load_arrays(tmp_path)
