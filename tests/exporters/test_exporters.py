"""Optimum's and txtai's files, made now by the tools themselves: `tox -e exporters`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.exporters.checkpoint import write_checkpoint
from tests.places import EXPORTED
from tests.plugin.project import Project

pytestmark = pytest.mark.exporters
HERE = Path(__file__).parent
MODEL = ("config.json", "model.safetensors")
LIMIT_S = 600


def export(name, *words):
    script = HERE / f"export_{name.lower()}.py"
    done = subprocess.run(
        [os.environ[f"PARITY_{name}"], str(script), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The fixtures' suites, with files that are made now."""
    folder = tmp_path_factory.mktemp("now") / "exported"
    shutil.copytree(EXPORTED, folder)
    return folder


def test_optimums_files_agree_with_pytorch(exported, tmp_path):
    shutil.rmtree(exported / "optimum")
    checkpoint = write_checkpoint(tmp_path / "sd", older_names=True)
    export("OPTIMUM", checkpoint, exported / "optimum")
    ended = Project(exported).parity("run", "--store", str(tmp_path / "store"))
    assert ended.code == 0, ended.text
    assert ended.has("lined up by scopes, which reach 100%")


def test_weights_that_optimum_did_not_know_are_found(exported, tmp_path):
    shutil.rmtree(exported / "optimum", ignore_errors=True)
    checkpoint = write_checkpoint(tmp_path / "sd", older_names=False)
    export("OPTIMUM", checkpoint, exported / "optimum")
    project = Project(exported)
    ended = project.parity(
        "run", "text_encoder/onnxruntime", "--store", str(tmp_path / "store")
    )
    assert ended.code == 1, ended.text
    assert ended.has("first diverges at embeddings.token_embedding")


def test_txtais_files_run_in_onnxruntime_and_end_in_a_finding_in_mnn(
    exported, tmp_path
):
    shutil.rmtree(exported / "txtai")
    export("TXTAI", exported / "txtai")
    project = Project(exported / "txtai_alone")
    (project.path / "known_gaps.toml").unlink()  # it would say gap, and not which
    ended = project.parity("run", "--store", str(tmp_path / "store"))
    found = {one["id"]: one["outcome"] for one in project.report["verdicts"]}
    assert found["pooling/onnxruntime/given/outputs"] == "within", ended.text
    assert found["pooling/mnn/fp32/outputs"] == "convert"


def test_txtais_files_agree_with_the_model_that_it_exported(exported, tmp_path):
    shutil.rmtree(exported / "txtai", ignore_errors=True)
    export("TXTAI", exported / "txtai")
    project = Project(exported / "txtai_bert")
    for name in MODEL:  # and no tokenizer: by its nine words all texts are alike
        shutil.copy(exported / "txtai" / "model" / name, project.path / "model" / name)
    ended = project.parity("run", "--store", str(tmp_path / "store"))
    assert ended.code == 0, ended.text
    assert ended.has("lined up by scopes, which reach 100%")
