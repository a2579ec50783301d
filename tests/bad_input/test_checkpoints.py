"""Weights that cannot be trusted are refused before anything native reads them."""

import json
import shutil
import struct

import pytest

TINY_HEADER = {"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def safetensors(header, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


NETWORKS = {
    "pickled": ("diffusion_pytorch_model.bin", b"\x80\x04N.", ("pickle", "refused")),
    "truncated": (
        "diffusion_pytorch_model.safetensors",
        safetensors(TINY_HEADER, b"1234"),
        ("78 bytes", "truncated"),
    ),
    "pointer": (
        "diffusion_pytorch_model.safetensors",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        ("63 bytes", "Git LFS pointer"),
    ),
    "weightless": ("README.md", b"", ("no weights", "`seed`")),
    "incomplete": (
        "diffusion_pytorch_model.safetensors",
        safetensors(TINY_HEADER, b"12345678"),
        ("lacks", "of the weights", "config.json"),
    ),
}
RECIPE = """\
from harness.recipes.diffusion import vae_decoder
from harness.recipes.checkpoint import load_network

signature, realistic = vae_decoder.signature, vae_decoder.realistic


def build(component, attention=""):
    return load_network(component.source, "{folder}", "AutoencoderKL")
"""


@pytest.fixture(scope="module")
def refused(new_project):
    """One checkpoint with a network for each way to be wrong, and one run of it."""
    project = new_project()
    folder = project.folder / "checkpoint"
    shutil.copytree(project.checkpoint, folder)
    more = ""
    for name, (file, data, _) in NETWORKS.items():
        shutil.copytree(folder / "vae", folder / name)
        (folder / name / file).write_bytes(data)
        more += project.write_recipe(name, RECIPE.format(folder=name))
    project.write(
        *NETWORKS,
        source='checkpoint = "checkpoint"',
        backends="[backend.onnxruntime]",
        more=more,
    )
    return project, project.run()


def test_weights_that_cannot_be_read_end_in_could_not_tell(refused):
    project, ended = refused
    assert ended.code == 2
    assert not list(project.store.glob("v1/onnx"))


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_wrong_with_weights_is_one_sentence(refused, name):
    *_, facts = NETWORKS[name]
    assert refused[1].sentence(f"checkpoint/{name}", *facts)


POINTER = NETWORKS["pointer"][1]
FOLDERS = {
    "pointer": ({"diffusion_pytorch_model.safetensors": POINTER}, "Git LFS pointer"),
    "empty": ({"diffusion_pytorch_model.safetensors": b""}, "0 bytes"),
    "truncated": (
        {"diffusion_pytorch_model.safetensors": NETWORKS["truncated"][1]},
        "78 bytes",
    ),
    "half-only": (
        {"diffusion_pytorch_model.fp16.safetensors": POINTER},
        "but diffusion_pytorch_model.fp16.safetensors",
    ),
    "shardless": (
        {
            "diffusion_pytorch_model.safetensors.index.json": json.dumps(
                {"weight_map": {"weight": "diffusion-00001-of-00001.safetensors"}}
            ).encode()
        },
        "diffusion-00001-of-00001.safetensors first; fetch",
    ),
}


@pytest.mark.parametrize("way", FOLDERS)
def test_a_components_folder_is_refused_ahead_and_in_a_run(way, new_project):
    project = new_project()
    folder = project.folder / "checkpoint"
    shutil.copytree(project.checkpoint, folder)
    files, fact = FOLDERS[way]
    for name, data in files.items():
        (folder / "vae" / name).write_bytes(data)
    project.write(
        "vae_decoder",
        source='checkpoint = "checkpoint"',
        backends="[backend.onnxruntime]",
    )

    ahead, ran = project.run("--forecast"), project.run()

    assert (ahead.code, ran.code) == (2, 2)
    assert ahead.sentence(str(folder / "vae"), fact)
    assert set(project.outcomes().values()) == {"export"}
    assert fact in project.reason("vae_decoder/onnxruntime/fp32/outputs")
    assert not list(project.store.glob("v1/onnx"))
