"""`parity store verify --remake`: what a store has is what the checkpoint gives."""

import json
import re
import shutil

import numpy as np
import onnx
import pytest

from harness.core.digest import digest_file
from tests.plugin.project import write_project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a project whose store is warm."""
    project = write_project(tmp_path_factory.mktemp("remake") / "project")
    project.only_onnxruntime()
    project.parity("run", "--store", "store").check(0)
    return project


@pytest.fixture
def project(made, tmp_path):
    return made.branch(tmp_path / "project")


def entry_of(project, kind):
    (record,) = project.path.glob(f"store/v1/{kind}/*/*/entry.json")
    return record.parent


def falsify(folder, name, change):
    """Change a file of an entry, and its record, as somebody would who may write."""
    path = folder / name
    change(path)
    record = json.loads((folder / "entry.json").read_text())
    said = {"size_bytes": path.stat().st_size, "digest": digest_file(path)}
    record["files"][name] = said
    (folder / "entry.json").write_text(json.dumps(record))


def other_weight(path):
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    array = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array * 1.01, tensor.name))
    onnx.save(model, path)


def other_values(path):
    (np.fromfile(path, np.float32) * np.float32(1.01)).tofile(path)


def other_floors(path):
    rows = json.loads(path.read_text())
    for row in rows.values():
        row["floor_rms"] = row["floor_rms"] and row["floor_rms"] * 100
    path.write_text(json.dumps(rows))


def other_inputs(path):
    np.save(path, np.load(path) * np.float32(1.01))


CHANGES = {
    "a weight": ("onnx", "model.onnx", other_weight, r"the weight '.+' differs"),
    "values": ("reference", "values.bin", other_values, r"could be rounding"),
    "floors": ("reference", "values.json", other_floors, r"its noise floor is"),
    "inputs": ("inputs", "000.npy", other_inputs, r"could be rounding"),
}


def test_a_sound_store_agrees_with_the_checkpoint(project):
    ended = project.parity("store", "verify", "--store", "store", "--remake", "9")
    ended.check(0, "3 entries made anew; 0 differ", "graph, weights and probes are")
    assert ended.text.count("✓") == 3
    assert len(re.findall("equal to the bit", ended.text)) == 2


@pytest.mark.parametrize("what", CHANGES)
def test_a_falsified_entry_is_named(project, what):
    """Its digests fit, so only the checkpoint tells; each makes the network anew."""
    kind, name, change, words = CHANGES[what]
    folder = entry_of(project, kind)
    falsify(folder, name, change)
    if kind == "inputs":  # the reference is filed under what they were
        shutil.rmtree(entry_of(project, "reference"))

    ended = project.parity("store", "verify", "--store", "store", "--remake", "9")

    ended.check(1, f"✗ {kind} {folder.name[:12]} of vae_decoder", "; 1 differ")
    assert re.search(words, ended.text)


def test_a_store_without_entries_of_the_suite_cannot_tell(project):
    project.parity("store", "verify", "--store", "empty", "--remake", "3").check(
        2, "has no entry of parity.toml; run the suite first"
    )
