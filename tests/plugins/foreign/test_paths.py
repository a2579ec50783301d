"""Paths of foreign files that no file can have: one sentence names the key's line."""

import json

import pytest

from tests.places import EXPORTED
from tests.unit.suite.pipelines import UNET
from tests.unit.suite.test_paths import PATHS, RUNS, check_refused, refusal

GRAPH = json.dumps(str(EXPORTED / "txtai" / "default.onnx"))


@pytest.mark.parametrize("key", ["onnx = PATH", f"onnx = {GRAPH}\nmnn = PATH"])
@pytest.mark.parametrize("what", PATHS)
def test_a_path_that_no_file_can_have_is_refused_at_its_line(tmp_path, key, what):
    text = f"{UNET}{RUNS}[component.unet]\n{key}\n"

    check_refused(tmp_path, text, PATHS[what])


def test_a_file_whose_name_leaves_no_room_for_its_weights_is_refused(tmp_path):
    name = "x" * 250 + ".mnn"
    (tmp_path / name).write_bytes(b"")

    assert "rename it" in refusal(
        tmp_path, f"{UNET}{RUNS}[component.unet]\nonnx = {GRAPH}\nmnn = PATH\n", name
    )
