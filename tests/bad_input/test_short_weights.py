"""Weights beside a model that are not all there, before anything native reads them."""

import shutil
from pathlib import Path

import pytest

from tests.places import EXPORTED

SCRIPTS = EXPORTED / "mnn_scripts"
BESIDE = {"onnx": "vae_decoder/model.onnx.data", "mnn": "vae_decoder.mnn.weight"}
BOUNDS = '[{}]\noutputs = "standard"\nlayers = "relaxed"\n'
SHAPES = "batch = 1\nheight = 8\nwidth = 8"


@pytest.fixture
def handed_over(empty):
    """The files of a decoder, beside a suite that takes some of them."""
    for name in ("vae_decoder/model.onnx", "vae_decoder.mnn", *BESIDE.values()):
        target = empty.folder / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(SCRIPTS / name, target)
    shutil.copytree(SCRIPTS.parent / "sd", empty.folder / "sd")

    def take(*kinds: str):
        paths = {"onnx": "vae_decoder/model.onnx", "mnn": "vae_decoder.mnn"}
        lines = [f'{kind} = "{paths[kind]}"' for kind in kinds]
        empty.write(
            "vae_decoder",
            source='checkpoint = "sd"\nseed = 0',
            shapes=SHAPES,
            more="\n".join(["[component.vae_decoder]", *lines]),
        )
        variants = {"onnx": ("onnxruntime.given", "mnn.fp32"), "mnn": ("mnn.given",)}
        bounds = "".join(BOUNDS.format(v) for kind in kinds for v in variants[kind])
        (empty.folder / "tolerances.toml").write_text(bounds, encoding="utf-8")
        return empty

    return take


def cut(project, kind: str) -> int:
    """Take the last byte of a file away, and return how many it had."""
    path = project.folder / BESIDE[kind]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    return len(data)


@pytest.mark.parametrize("kind", BESIDE)
def test_a_file_of_weights_that_is_too_short_is_named_with_its_bytes(kind, handed_over):
    project = handed_over(kind)
    size = cut(project, kind)
    ended = project.run()
    assert ended.code == 2
    assert set(project.outcomes().values()) == {"load"}
    said = ended.sentence(f"up to byte {size:,}", f"that file has {size - 1:,} bytes")
    assert Path(BESIDE[kind]).name in said


@pytest.mark.parametrize("kind", BESIDE)
def test_init_refuses_files_whose_weights_are_too_short(kind, handed_over):
    project = handed_over(kind)
    cut(project, kind)
    folder = project.folder / "vae_decoder"
    for end in ("", ".weight"):
        shutil.copy(
            project.folder / f"vae_decoder.mnn{end}", folder / f"model.mnn{end}"
        )

    ended = project.run("vae_decoder", "--into", "new", command="init")

    assert ended.code == 2
    assert ended.sentence(Path(BESIDE[kind].replace("vae_decoder.", "model.")).name)
    assert not (project.folder / "new").exists()
