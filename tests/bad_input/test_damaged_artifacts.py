"""What was made and then damaged is made again, or refused; it is never run."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

TRUNCATED = ("mnn/model.mnn", "mnn/model.mnn.weight")
MISSING = ("mnn/model.mnn.weight", "mnn/model.mnn")
CHANGED = (
    "mnn/model.mnn",
    "mnn/model.mnn.weight",
    "onnx/model.onnx",
    "inputs/latent_sample.npy",
    "reference/values.bin",
)


def artifact(project, name: str):
    kind, _, file = name.partition("/")
    return project.entry(kind) / file


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_artifact_is_made_again(project, name):
    path = artifact(project, name)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    ended = project.run("mnn")

    assert ended.code == 0
    assert path.stat().st_size == len(whole)


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_artifact_is_made_again(project, name):
    path = artifact(project, name)
    path.unlink()

    ended = project.run("mnn")

    assert ended.code == 0
    assert path.is_file()


@pytest.mark.parametrize("name", CHANGED)
def test_an_artifact_that_was_changed_is_refused_before_it_is_run(project, name):
    path = artifact(project, name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)

    ended = project.run("onnxruntime" if "onnx" in name else "mnn")

    assert ended.code == 2
    assert set(project.outcomes().values()) == {"load"}
    assert ended.sentence(path.name, "changed after it was made", "parity store verify")


def test_verify_takes_a_changed_artifact_out_and_the_next_run_makes_it(project):
    path = artifact(project, "mnn/model.mnn.weight")
    whole = path.read_bytes()
    path.write_bytes(bytes(len(whole)))

    found = project.run("verify", command="store")
    ended = project.run("mnn")

    assert found.code == 2
    assert found.sentence("model.mnn.weight", "changed after it was made", "removed")
    assert ended.code == 0
    assert path.read_bytes() == whole
