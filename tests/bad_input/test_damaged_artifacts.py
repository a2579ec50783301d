"""What was made and then damaged is made again, or refused; it is never run."""

import pytest

pytestmark = pytest.mark.slow

CHANGED = (
    "mnn/model.mnn",
    "mnn/model.mnn.weight",
    "onnx/model.onnx",
    "inputs/000.npy",
    "reference/values.bin",
)


def artifact(project, name: str):
    kind, _, file = name.partition("/")
    return project.entry(kind) / file


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(path):
    path.unlink()


@pytest.mark.parametrize("harm", [truncate, remove])
@pytest.mark.parametrize("name", ["mnn/model.mnn", "mnn/model.mnn.weight"])
def test_an_artifact_that_is_not_all_there_is_made_again(project, name, harm):
    path = artifact(project, name)
    size = path.stat().st_size
    harm(path)
    assert project.run("mnn").code == 0
    assert path.stat().st_size == size


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
