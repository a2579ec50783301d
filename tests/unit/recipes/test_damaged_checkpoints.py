"""A damaged or hostile checkpoint ends in one sentence that names the file."""

import json
import shutil
import struct

import pytest

from harness.core.errors import ParityError
from harness.plugins.start.init.write import write_suite
from tests.places import DIGITS
from tests.plugin.project import called
from tests.unit.encoders import write_encoder

DEEP = "[" * 100_000
LONG = json.dumps({"weight_map": {"w": "w" * 300}})
SUITE = """\
components = ["unet"]
source.checkpoint = "."
shapes = [{ batch = 1, height = 8, width = 8 }]
backend.onnxruntime.variants = ["fp32"]
"""
SHARDS = "unet/diffusion_pytorch_model.safetensors.index.json"
WEIGHTS = "unet/diffusion_pytorch_model.safetensors"


def changed(key, value):
    """Return a change of one key of a JSON file."""

    def change(text):
        return json.dumps({**json.loads(text), key: value})

    return change


def without(key):
    def change(text):
        told = json.loads(text)
        del told[key]
        return json.dumps(told)

    return change


def text_of(text):
    return lambda _: text


DAMAGES = {
    "deep": ("unet/config.json", text_of(DEEP)),
    "deep value": ("unet/config.json", text_of(f'{{"a": {DEEP}')),
    "a list": ("unet/config.json", text_of("[]")),
    "no text": ("unet/config.json", text_of("\udcff")),
    "list for a number": ("unet/config.json", changed("in_channels", [4])),
    "text for a list": ("unet/config.json", changed("block_out_channels", "8")),
    "not a number": ("unet/config.json", changed("layers_per_block", float("nan"))),
    "endless": ("vae/config.json", changed("scaling_factor", float("inf"))),
    "huge": ("unet/config.json", changed("in_channels", 10**30)),
    "negative": ("unet/config.json", changed("cross_attention_dim", -1)),
    "number for a text": ("unet/config.json", changed("_class_name", 7)),
    "missing stages": ("unet/config.json", without("block_out_channels")),
    "list for an index": ("model_index.json", text_of("[1]")),
    "deep index": ("model_index.json", text_of(DEEP)),
    "class of an index": ("model_index.json", changed("_class_name", [1])),
    "scheduler": ("scheduler/scheduler_config.json", text_of("[]")),
    "deep scheduler": ("scheduler/scheduler_config.json", text_of(DEEP)),
    "no scheduler": ("scheduler/scheduler_config.json", without("_class_name")),
    "shards above": (SHARDS, text_of('{"weight_map": {"w": "../x.safetensors"}}')),
    "shards far away": (SHARDS, text_of('{"weight_map": {"w": "/x.safetensors"}}')),
    "shards of numbers": (SHARDS, text_of('{"weight_map": {"w": 1}}')),
    "shards of a long name": (SHARDS, text_of(LONG)),
    "deep shards": (SHARDS, text_of(DEEP)),
    "no shards": (SHARDS, text_of("{}")),
}


@pytest.fixture
def checkpoint(tmp_path):
    root = tmp_path / "model"
    ignored = shutil.ignore_patterns("*.toml", "*.png")
    shutil.copytree(DIGITS, root, ignore=ignored)
    (root / "parity.toml").write_text(SUITE)
    bounds = '[onnxruntime.fp32]\noutputs = "standard"\nlayers = "standard"\n'
    (root / "tolerances.toml").write_text(bounds)
    return root


def damage(root, name, change):
    path = root / name
    text = path.read_text() if path.is_file() else ""
    path.write_bytes(change(text).encode("utf-8", errors="surrogateescape"))


@pytest.mark.parametrize(("name", "change"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_a_sentence(checkpoint, name, change):
    damage(checkpoint, name, change)
    with pytest.raises(ParityError) as refused:
        write_suite(checkpoint, checkpoint.parent / "suite")
    said = str(refused.value)
    assert name.rpartition("/")[2] in said or str(checkpoint) in said
    assert len(said) < 600
    assert not (checkpoint.parent / "suite").exists()


@pytest.mark.parametrize("which", ["deep", "huge", "missing stages", "shards above"])
def test_a_command_ends_in_a_sentence(checkpoint, which):
    damage(checkpoint, *DAMAGES[which])
    ended = called(checkpoint, "run", "unet", "--store", str(checkpoint.parent / "s"))
    ended.check(2, DAMAGES[which][0].rpartition("/")[2])
    assert "error of the harness" not in ended.text


def header(told, size=None):
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text


ONE = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HEADERS = {
    "beyond the file": header({"w": ONE}, 1 << 60),
    "cut short": header({"w": ONE}, 1000),
    "deep": struct.pack("<Q", len(DEEP)) + DEEP.encode(),
    "overlapping": header({"w": ONE, "v": ONE}) + bytes(16),
    "no numbers": header({"w": {**ONE, "shape": ["4"]}}) + bytes(16),
    "negative": header({"w": {**ONE, "shape": [-4]}}) + bytes(16),
    "huge": header({"w": {**ONE, "shape": [1 << 62, 1 << 62]}}) + bytes(16),
    "no such type": header({"w": {**ONE, "dtype": "X1"}}) + bytes(16),
    "a list": header([1]),
    "nothing": b"",
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_weights_with_a_damaged_header_are_refused(checkpoint, content):
    (checkpoint / WEIGHTS).write_bytes(content)
    store = ("--store", str(checkpoint.parent / "s"))
    ended = called(checkpoint, "ranges", "unet", *store)
    ended.check(2, "diffusion_pytorch_model.safetensors")
    assert "error of the harness" not in ended.text


@pytest.mark.parametrize(
    "listed",
    [
        DEEP,
        "{}",
        '[{"type": 1, "path": ""}]',
        '[{"type": "x.Transformer", "path": "../model"}]',
        '[{"type": "x.Pooling", "path": "/etc"}]',
    ],
)
def test_modules_of_a_text_model_lie_beside_their_list(tmp_path, listed):
    write_encoder(tmp_path / "model", "bert")
    (tmp_path / "model" / "modules.json").write_text(listed)
    with pytest.raises(ParityError, match=r"modules\.json"):
        write_suite(tmp_path / "model", tmp_path / "suite")
