"""`harness.engine.keys`: what was made is found again, and nothing else is."""

import json
import shutil
from dataclasses import replace

import pytest

from harness.core.case import (
    Device,
    ExportSettings,
    Sample,
    Source,
    Taken,
    Variant,
)
from harness.core.digest import digest_value
from harness.core.entry import Entry
from harness.core.runtime import runtimes
from harness.engine import keys
from harness.engine.deployed import Reading
from harness.engine.excerpt import Spot
from harness.engine.store import Store
from harness.recipes import describe
from harness.suite.suite import load_suite
from tests.unit import nets

SHAPES = (("batch", 2), ("height", 8), ("width", 12))
SAMPLE = Sample(profile="realistic", index=1, shapes=SHAPES)
HERE = Device()
ONNX = next((nets.DIGITS.parent / "exported").rglob("*.onnx"))
SETTINGS = ExportSettings()
VARIANT = Variant(name="fp32", backend="mnn", kind="fp32")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    return Source(path=nets.small_checkpoint(folder), seed=0)


@pytest.fixture(scope="module")
def unet(source):
    return describe("unet", "unet", source)


@pytest.fixture
def entry(tmp_path) -> Entry:
    def build(folder):
        (folder / "model.onnx").write_bytes(b"graph")
        return {}

    return Store(root=tmp_path).make("onnx", {"one": 1}, build)


def onnx(component, settings=SETTINGS, **shapes):
    return digest_value(keys.onnx_key(component, settings, {**dict(SHAPES), **shapes}))


def test_keys_are_json_and_hold_no_path(unet, entry, source):
    made = [
        keys.inputs_key(unet, SAMPLE),
        keys.onnx_key(unet, SETTINGS, dict(SHAPES)),
        keys.reference_key({"a": 1}, entry, Device(), layers=True),
        keys.variant_key(entry, VARIANT, None),
    ]

    for key in made:
        assert str(source.path) not in json.dumps(key)


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, opset=20),
        replace(SETTINGS, exporter="torchscript"),
        replace(SETTINGS, dynamic=()),
        replace(SETTINGS, external_data=True),
        replace(SETTINGS, attention="eager"),
    ],
    ids=str,
)
def test_a_graph_is_another_when_it_is_asked_for_otherwise(unet, settings):
    assert onnx(unet, settings) != onnx(unet)


def test_a_graph_is_another_for_other_sizes_seeds_and_networks(unet, source):
    reseeded = describe("unet", "unet", replace(source, seed=1))
    control = describe("unet", "controlnet", source)

    assert len({onnx(unet), onnx(unet, height=9), onnx(reseeded), onnx(control)}) == 4


def test_a_graph_is_the_same_under_another_name_or_place(unet, tmp_path):
    moved = Source(path=nets.small_checkpoint(tmp_path / "moved"), seed=0)

    assert onnx(describe("unet", "unet", moved)) == onnx(unet)
    assert onnx(replace(unet, name="denoiser")) == onnx(unet)


def test_only_the_networks_own_folder_decides_its_graph(unet, tmp_path):
    folder = nets.small_checkpoint(tmp_path / "changed")
    config = folder / "controlnet" / "config.json"
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    other = Source(path=folder, seed=0)
    unet_there = describe("unet", "unet", other)

    assert onnx(unet_there) == onnx(unet)
    assert onnx(describe("c", "controlnet", other)) != onnx(
        describe("c", "controlnet", unet.source)
    )


def test_inputs_hang_on_the_sample_but_not_on_whether_layers_are_watched(unet):
    key = keys.inputs_key(unet, SAMPLE)

    assert keys.inputs_key(unet, replace(SAMPLE, layers=False)) == key
    for change in ({"index": 2}, {"seed": 1}, {"profile": "unit-normal"}):
        assert keys.inputs_key(unet, replace(SAMPLE, **change)) != key


def test_a_reference_hangs_on_graph_inputs_device_and_layers(entry):
    def key(graph=1, device=HERE, *, layers=True):
        return keys.reference_key({"graph": graph}, entry, device, layers=layers)

    others = [key(2), key(device=Device(device="cuda")), key(layers=False)]

    assert key() == key()
    assert key() not in others


def test_a_deployed_file_hangs_on_contents_kind_flags_and_converter(entry, tmp_path):
    program = tmp_path / "MNNConvert"
    program.write_text("one", encoding="utf-8")
    key = keys.variant_key(entry, VARIANT, None)
    others = [
        keys.variant_key(entry, replace(VARIANT, kind="fp16-weights"), None),
        keys.variant_key(entry, replace(VARIANT, flags=("--fp16",)), None),
        keys.variant_key(entry, replace(VARIANT, backend="onnxruntime"), None),
        keys.variant_key(entry, VARIANT, str(program)),
    ]

    assert keys.variant_key(entry, replace(VARIANT, name="mine"), None) == key
    assert key not in others
    assert len({digest_value(other) for other in others}) == 4


FOLDERS = (
    *("measure", "recipes", "runtimes/diffusion", "runtimes/foreign", "runtimes/graph"),
    *("runtimes/mnn", "runtimes/onnxruntime", "runtimes/openvino", "runtimes/pytorch"),
)
REMADE = {
    "inputs": {"recipes"},
    "onnx": {"measure", "recipes", "runtimes/graph", "runtimes/pytorch"},
    "foreign onnx": {*FOLDERS[:2], *FOLDERS[3:5], "runtimes/pytorch"},
    "program": {*FOLDERS[:2], *FOLDERS[3:5], "runtimes/pytorch"},
    "reference": {"measure", "recipes", "runtimes/graph", "runtimes/pytorch"},
    "input sensitivity": {"measure", "recipes", "runtimes/graph", "runtimes/pytorch"},
    "graph check": {"measure", "recipes", "runtimes/graph", "runtimes/pytorch"},
    "weights": {"recipes", "runtimes/pytorch"},
    "mnn": {"runtimes/graph", "runtimes/mnn"},
    "onnxruntime": {"runtimes/graph", "runtimes/onnxruntime"},
    "openvino": {"runtimes/graph", "runtimes/openvino"},
    "foreign mnn": {*FOLDERS[:2], *FOLDERS[3:6], "runtimes/pytorch"},
    "excerpt": {"measure", "runtimes/graph"},
    "drawing inputs": {*FOLDERS[:3], "runtimes/pytorch"},
    "drawing": {*FOLDERS[:3], "runtimes/pytorch"},
}
"""Each kind of entry, to the folders whose code decides it."""


@pytest.fixture
def forget():
    """Digests of code are read once a process; a test of them must leave none."""

    def clear():
        keys.code_digest.cache_clear()
        keys._recipe_code.cache_clear()

    yield clear
    clear()


def keys_of(component, entry, pipeline):
    """Return the key of one entry of every kind."""
    taken = replace(component, taken=Taken(onnx=ONNX))
    reading = Reading(sample="s", inputs=entry, reference=entry, layers=True)
    return {
        "inputs": keys.inputs_key(component, SAMPLE),
        "onnx": keys.onnx_key(component, SETTINGS, dict(SHAPES)),
        "foreign onnx": keys.onnx_key(taken, SETTINGS, dict(SHAPES)),
        "program": keys.program_key(component, SETTINGS, [[1]]),
        "reference": keys.reference_key({"a": 1}, entry, HERE, layers=True),
        "input sensitivity": keys.asked_key(component, SHAPES, HERE),
        "graph check": keys.checked_key(component, entry),
        "weights": keys.weights_key(component),
        **{
            name: keys.variant_key(entry, replace(VARIANT, backend=name), None)
            for name in runtimes()
        },
        "foreign mnn": keys.converted_key(component, "mnn"),
        "excerpt": keys.excerpt_key(entry, reading, Spot(probe="v", shown=())),
        "drawing inputs": keys.drawing_inputs_key(pipeline),
        "drawing": keys.drawing_key(pipeline, entry, HERE),
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_changed_line_of_code_remakes_what_it_decides_and_nothing_else(
    folder, unet, entry, monkeypatch, forget
):
    pipeline = load_suite(nets.DIGITS).chains[0].pipeline
    home = entry.path.parent / "copy" / "harness"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(keys.HOME, home, ignore=ignored)
    monkeypatch.setattr(keys, "HOME", home)
    forget()
    before = keys_of(unet, entry, pipeline)

    changed = next((home / folder).rglob("[a-z]*.py"))
    changed.write_text(f"{changed.read_text(encoding='utf-8')}\n# A line.\n")
    forget()
    after = keys_of(unet, entry, pipeline)

    remade = {name for name in before if before[name] != after[name]}
    assert remade == {name for name, homes in REMADE.items() if folder in homes}


def test_every_folder_of_code_that_a_worker_runs_is_in_a_key():
    runtimes = {path.parent for path in (keys.HOME / "runtimes").glob("*/__init__.py")}
    named = {keys.HOME / folder for folder in FOLDERS}

    # What it finds out is in a record, and no record is kept in the store.
    assert runtimes - named == {keys.HOME / "runtimes" / "candidate"}


def test_only_installed_packages_have_a_version():
    found = keys.versions(("torch", "no-such-package"))

    assert list(found) == ["torch"]


def test_a_question_is_the_weights_and_the_sample_and_nothing_of_the_tools(
    unet, monkeypatch
):
    asked = keys.question(unet, SAMPLE)

    monkeypatch.setattr(keys, "versions", lambda _names: {"torch": "another"})
    monkeypatch.setattr(keys, "code_digest", lambda _modules: "another")
    assert keys.question(unet, replace(SAMPLE, layers=not SAMPLE.layers)) == asked

    for changed in (
        keys.question(unet, replace(SAMPLE, seed=SAMPLE.seed + 1)),
        keys.question(unet, replace(SAMPLE, shapes=(("batch", 3),))),
        keys.question(replace(unet, source=replace(unet.source, seed=7)), SAMPLE),
    ):
        assert changed != asked


def test_t5_is_found_again_when_a_folder_that_it_does_not_read_changes(tmp_path):
    found = set()
    for steps in (100, 1000):
        home = tmp_path / f"{steps}"
        shutil.copytree(nets.DIGITS.parent / "pixart", home)
        scheduler = home / "scheduler" / "scheduler_config.json"
        config = json.loads(scheduler.read_text(encoding="utf-8"))
        scheduler.write_text(json.dumps({**config, "num_train_timesteps": steps}))
        part = describe("t5_encoder", "t5_encoder", Source(path=home, seed=0))
        found.add(digest_value(keys.onnx_key(part, SETTINGS, dict(SHAPES))))

    assert len(found) == 1
