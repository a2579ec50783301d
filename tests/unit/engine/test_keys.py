"""`harness.engine.keys`: a stored artifact is found again, and no other one."""

import json
import shutil
from dataclasses import replace

import pytest

from harness.core.case import ExportSettings, Source
from harness.core.digest import digest_value
from harness.core.runtime import runtimes
from harness.core.settings import RUNS
from harness.engine import keys, tasks
from harness.recipes import describe
from tests.places import FIXTURES
from tests.unit import nets
from tests.unit.engine.key_parts import (
    OTHER_ONNX,
    SHAPES,
    digests,
    keys_of,
    moved,
    stored,
)


def renamed(specs):
    return (replace(specs[0], name="renamed"), *specs[1:])


def each(at, **values):
    return [(f"{at}.{name}", value) for name, value in values.items()]


COMPONENT = each(
    "component",
    recipe="controlnet",
    options=(("depth", 1),),
    inputs=renamed,
    outputs=renamed,
)
COMPONENT += [("component.source.seed", 1)]
FOREIGN = [(path.replace("component", "foreign"), value) for path, value in COMPONENT]
FOREIGN += [("foreign.foreign.names", (("sample", "x"),))]
EXPORT = [
    *each("settings", exporter="torchscript", opset=20, dynamic=(), keep_paths=True),
    *each("settings", external_data=True, attention="eager", optimize=False),
]
DEVICE = [
    *each("device", device="cuda", threads=1, precision="low", tf32=True),
    *each("device", hints=(("hint", 1),)),
]
SAMPLE = each(
    "sample",
    profile="unit-normal",
    index=2,
    seed=1,
    shapes=(("batch", 3),),
    knobs=(("knob", 0.5),),
)
OTHER_SHAPES = tuple((symbol, size + 1) for symbol, size in SHAPES)
DEPLOYED = [
    ("graph", "other entry"),
    *each("variant", kind="fp16", flags=("--flag",), converter="3.5.0"),
    ("native", "converter"),
    ("calibration", "other entries"),
]
TEXTS = [
    *each("pipeline", prompts=("three",), added_prompt="red ink", samples=2),
    *each("pipeline", negative_prompt="blue ink"),
]
CONTROL = [
    *each("pipeline.control", resolution=64, strength=0.5, guess_mode=True),
    *each("pipeline.control", low_threshold=99, high_threshold=199),
]
DRAWN = [
    ("pipeline.source.seed", 1),
    *each("pipeline", kind="img2img", family="StableDiffusionXL", steps=11, seed=1),
    *each("pipeline", height=128, width=128, image="picture", mask="picture"),
    *TEXTS,
    *CONTROL,
]
SAMPLED = [
    ("pipeline.source.path", "another scheduler"),
    *each("pipeline.sampling", scheduler="euler", options=(("steps_offset", 0),)),
    *each("pipeline", guidance_scale=1.0, eta=0.5, strength=0.5),
]
ROLES = [
    ("pipeline.components", lambda all_of: all_of[1:]),
    *each("pipeline", t5_tokens=8, vae_tiling=True),
]
MOVES = {
    "inputs": [
        *each("component", name="another", recipe="controlnet"),
        *each("component", options=(("depth", 1),)),
        ("component.source.seed", 1),
        *SAMPLE,
    ],
    "onnx": [*COMPONENT, *EXPORT, ("shapes", OTHER_SHAPES)],
    "foreign onnx": [*FOREIGN, ("foreign.foreign.onnx", OTHER_ONNX), *EXPORT],
    "program": [*COMPONENT, *EXPORT, ("traced", [[1]])],
    "reference": [
        *(("graph_key", {"a": 2}), ("inputs", "other entry"), ("layers", False)),
        *DEVICE,
    ],
    "input sensitivity": [
        *COMPONENT,
        *(("component.name", "another"), ("shapes", (("batch", 3),))),
        *DEVICE,
    ],
    "graph check": [*COMPONENT, ("graph", "other entry")],
    "effects": [
        *(*COMPONENT, *DEVICE, ("graph", "other entry"), ("only", (1,))),
        ("trials", ((("conv_in", 5),),)),
        ("values", {"inputs": {"s": "another digest"}}),
    ],
    "weights": COMPONENT,
    **dict.fromkeys(runtimes(), DEPLOYED),
    "foreign mnn": [
        ("foreign.foreign.converted", "other file"),
        ("foreign.foreign.names", (("sample", "x"),)),
        *each("foreign", inputs=renamed, outputs=renamed),
    ],
    "drawing inputs": [*DRAWN, ("pipeline.source.path", "another encoder")],
    "drawing": [
        *(("inputs", "other entry"), ("pipeline.source.path", "another index")),
        *(*TEXTS, *SAMPLED, *CONTROL, *ROLES, *DEVICE),
    ],
    "question": [
        *each("component", recipe="controlnet", options=(("depth", 1),)),
        ("component.source.seed", 1),
        *SAMPLE,
    ],
    "drawing question": [*DRAWN, *SAMPLED, *ROLES],
}
"""Each kind of entry to what decides it: a part of `given`, and another value of it."""


@pytest.fixture
def real(given, tmp_path):
    """Return what stands for the words of `MOVES` that need files."""

    def checkpoint(name):
        home = tmp_path / name.replace("/", "-")
        shutil.copytree(given.pipeline.source.path, home)
        with (home / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        return home

    def index():
        home = checkpoint("model_index.json")
        text = (home / "model_index.json").read_text(encoding="utf-8")
        (home / "model_index.json").write_text(
            json.dumps({**json.loads(text), "force_zeros_for_empty_prompt": False})
        )
        return home

    def encoder():
        home = checkpoint("text_encoder/config.json")
        file = home / "text_encoder" / "config.json"
        told = {**json.loads(file.read_text()), "max_position_embeddings": 7}
        file.write_text(json.dumps(told))
        return home

    makers = {
        "other entry": lambda: stored(tmp_path, b"other"),
        "other entries": lambda: (stored(tmp_path, b"other"),),
        "other file": lambda: (("mnn", given.folder / "other.mnn"),),
        "another scheduler": lambda: checkpoint("scheduler/scheduler_config.json"),
        "another index": index,
        "another encoder": encoder,
        "converter": lambda: str(given.folder / "converter"),
        "picture": lambda: given.folder / "picture",
    }
    return lambda value: (
        makers[value]() if isinstance(value, str) and value in makers else value
    )


def fields(key):
    """Return the fields of a key and those of its tables, but of code and of tools."""
    # They have tests of their own.
    apart = {"code", "tools", "plugins", "drawn_on", "runtime"}
    found: dict[tuple[str, str], object] = {}
    for name, value in key.items():
        table = value if isinstance(value, dict) else {"": value}
        found |= {(name, inner): part for inner, part in table.items()}
    return {path: part for path, part in found.items() if not {*path} & apart}


@pytest.mark.parametrize("kind", MOVES)
def test_whatever_decides_an_entry_and_nothing_else_is_in_its_key(given, real, kind):
    here, changed = fields(keys_of(given)[kind]()), set()
    for path, value in MOVES[kind]:
        there = fields(keys_of(moved(given, path, real(value)))[kind]())
        assert there != here, path
        changed |= {field for field in here if there.get(field, here) != here[field]}
    assert changed == set(here)


def planned(given, name, text):
    (path := given.folder / name).write_text(text, encoding="utf-8")
    flag = f"--file={name}"
    return keys.part(replace(given.variant, flags=(flag,), files=((flag, path),)))


def test_the_contents_of_a_flags_file_decide_and_its_name_does_not(given):
    one, same, other = (
        planned(given, *file) for file in (("a", "1"), ("b", "1"), ("a", "2"))
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("inputs", "sample.layers", False),
        ("inputs", "sample.label", "worst-1"),
        ("onnx", "component.name", "denoiser"),
        ("onnx", "device.threads", 1),
        ("program", "component.name", "denoiser"),
        ("weights", "component.name", "denoiser"),
        ("mnn", "variant.name", "mine"),
        ("drawing", "pipeline.name", "mine"),
        ("drawing", "pipeline.reader", "file.py:read"),
        ("drawing", "pipeline.attribution", False),
        ("drawing", "pipeline.app.guidance_scale", 2.0),
        ("question", "sample.layers", False),
        ("question", "component.name", "denoiser"),
    ],
)
def test_whatever_decides_nothing_is_in_no_key(given, kind, path, value):
    assert digests(moved(given, path, value), kind) == digests(given, kind)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        *((name, "unet") for name in ("config.json", "model.safetensors")),
        *((name, "unet") for name in ("merges.txt", "spiece.model", "words.vocab")),
        *((name, "my_net") for name in ("net.pt", "net.npz", "pytorch_model.bin")),
        *((name, "my_net") for name in ("best.pth.tar", "net.pickle", "net.onnx.data")),
    ],
)
def test_a_checkpoint_is_configuration_weights_words(given, tmp_path, name, recipe):
    given = moved(given, "component.recipe", recipe)
    home = tmp_path / "checkpoint"
    shutil.copytree(given.component.source.path, home)
    of_a_run = f"{RUNS}/2026-11-25T14-28-12/cases/case.json"
    for unread in ("notes.md", ".cache/notes.json", of_a_run):
        (home / unread).parent.mkdir(parents=True, exist_ok=True)
        (home / unread).write_text("{}")
    here = moved(given, "component.source.path", home)
    assert digests(here, "weights") == digests(given, "weights")

    keys.checkpoint_digest.cache_clear()
    with (home / "unet" / name).open("a") as file:
        file.write("\n")
    assert digests(here, "weights") != digests(given, "weights")


def test_keys_hold_no_path(given, tmp_path):
    for make in keys_of(given).values():
        assert str(given.component.source.path) not in json.dumps(make())
    there = Source(path=nets.small_checkpoint(tmp_path / "moved"), seed=0)
    other = moved(given, "component", describe("unet", "unet", there))
    assert digests(other, "onnx") == digests(given, "onnx")


def test_only_the_networks_own_folder_decides_its_graph(given, tmp_path):
    folder = nets.small_checkpoint(tmp_path / "changed")
    config = folder / "controlnet" / "config.json"
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    other = Source(path=folder, seed=0)

    for recipe, same in (("unet", True), ("controlnet", False)):
        here, there = (
            moved(given, "component", describe("c", recipe, source))
            for source in (given.component.source, other)
        )
        assert (digests(here, "onnx") == digests(there, "onnx")) is same


def test_t5_is_found_again_when_a_folder_that_it_does_not_read_changes(tmp_path):
    found = set()
    for steps in (100, 1000):
        home = tmp_path / f"{steps}"
        shutil.copytree(FIXTURES / "pixart", home)
        scheduler = home / "scheduler" / "scheduler_config.json"
        config = json.loads(scheduler.read_text(encoding="utf-8"))
        scheduler.write_text(json.dumps({**config, "num_train_timesteps": steps}))
        part = describe("t5_encoder", "t5_encoder", Source(path=home, seed=0))
        found.add(digest_value(tasks.GRAPH.key(part, ExportSettings(), dict(SHAPES))))

    assert len(found) == 1


def test_a_file_that_is_its_own_reference_depends_on_what_runs_it(given):
    alone = moved(given.foreign, "recipe", "given")
    assert "onnxruntime" in str(keys.part(alone))
    assert "onnxruntime" not in str(keys.part(given.foreign))
