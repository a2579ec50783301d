"""`harness.engine.keys`: a stored artifact is found again, and no other one."""

import json
import shutil
from dataclasses import replace

import pytest

from harness.core.case import ExportSettings, Source
from harness.core.digest import digest_value
from harness.core.runtime import runtimes
from harness.core.settings import RUNS
from harness.engine import keys
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


COMPONENT = [
    ("component.recipe", "component.recipe", "controlnet"),
    ("component.checkpoint", "component.source.seed", 1),
    ("component.options", "component.options", (("depth", 1),)),
    ("component.inputs", "component.inputs", renamed),
    ("component.outputs", "component.outputs", renamed),
]


def each(prefix, at, **values):
    return [(f"{prefix}.{name}", f"{at}.{name}", v) for name, v in values.items()]


EXPORT = [
    *each("export", "settings", exporter="torchscript", opset=20, dynamic=()),
    *each("export", "settings", external_data=True, attention="eager"),
    *each("export", "settings", keep_paths=True),
]
DEVICE = [
    *each("device", "device", device="cuda", threads=1, precision="low", tf32=True),
    *each("device", "device", hints=(("hint", 1),)),
]
CONTROL = [
    *each("control", "pipeline.control", resolution=64, strength=0.5, guess_mode=True),
    *each("control", "pipeline.control", low_threshold=99, high_threshold=199),
]
SAMPLE = [
    *each("sample", "sample", profile="unit-normal", index=2, seed=1),
    *each("sample", "sample", shapes=(("batch", 3),), knobs=(("knob", 0.5),)),
]
DEPLOYED = [
    ("onnx", "graph", "other entry"),
    ("kind", "variant.kind", "fp16"),
    ("flags", "variant.flags", ("--flag",)),
    ("converter", "native", "converter"),
    ("calibration", "calibration", "other entries"),
]
TEXTS = [
    ("texts", "pipeline.prompts", ("three",)),
    ("texts", "pipeline.added_prompt", "red ink"),
    ("texts", "pipeline.negative_prompt", "blue ink"),
    ("texts", "pipeline.samples", 2),
]
DRAWN = [
    ("checkpoint", "pipeline.source.seed", 1),
    ("kind", "pipeline.kind", "img2img"),
    ("encoders", "pipeline.family", "StableDiffusionXL"),
    *TEXTS,
    ("steps", "pipeline.steps", 11),
    ("seed", "pipeline.seed", 1),
    ("size", "pipeline.height", 128),
    ("size", "pipeline.width", 128),
    ("image", "pipeline.image", "picture"),
    ("mask", "pipeline.mask", "picture"),
    *CONTROL,
]
SAMPLED = [
    ("scheduler", "pipeline.source.path", "another scheduler"),
    ("sampling.scheduler", "pipeline.sampling.scheduler", "euler"),
    ("sampling.options", "pipeline.sampling.options", (("steps_offset", 0),)),
    ("guidance_scale", "pipeline.guidance_scale", 1.0),
    ("eta", "pipeline.eta", 0.5),
    ("strength", "pipeline.strength", 0.5),
]
MOVES = {
    "inputs": [
        ("options", "component.options", (("depth", 1),)),
        ("component", "component.name", "another"),
        ("recipe", "component.recipe", "controlnet"),
        ("checkpoint", "component.source.seed", 1),
        *SAMPLE,
    ],
    "onnx": [*COMPONENT, *EXPORT, ("shapes", "shapes", (*SHAPES[:2], ("width", 13)))],
    "foreign onnx": [
        *(
            (field, path.replace("component", "foreign"), v)
            for field, path, v in COMPONENT
        ),
        ("taken", "foreign.foreign.onnx", OTHER_ONNX),
        ("names", "foreign.foreign.names", (("sample", "x"),)),
        *EXPORT,
    ],
    "program": [*COMPONENT, *EXPORT, ("shapes", "traced", [[1]])],
    "reference": [
        ("onnx", "graph_key", {"a": 2}),
        ("inputs", "inputs", "other entry"),
        *DEVICE,
        ("layers", "layers", False),
    ],
    "input sensitivity": [
        *COMPONENT,
        ("name", "component.name", "another"),
        ("sizes", "shapes", (("batch", 3),)),
        *DEVICE,
    ],
    "graph check": [*COMPONENT, ("onnx", "graph", "other entry")],
    "effects": [
        *COMPONENT,
        ("artifact", "graph", "other entry"),
        *DEVICE,
        ("trials", "trials", ((("conv_in", 5),),)),
        ("only", "only", (1,)),
        ("values", "values", {"inputs": {"s": "another digest"}}),
    ],
    "weights": COMPONENT,
    **dict.fromkeys(runtimes(), DEPLOYED),
    "foreign mnn": [
        ("file", "foreign.foreign.converted", "other file"),
        ("names", "foreign.foreign.names", (("sample", "x"),)),
        ("inputs", "foreign.inputs", renamed),
        ("outputs", "foreign.outputs", renamed),
    ],
    "excerpt": [
        ("onnx", "graph", "other entry"),
        ("inputs", "reading.inputs", "other entry"),
        ("reference", "reading.reference", "other entry"),
        ("spot.probe", "spot.probe", "w"),
        ("spot.shown", "spot.shown", ("u",)),
    ],
    "drawing inputs": [*DRAWN, ("read_by", "pipeline.source.path", "another encoder")],
    "drawing": [
        ("inputs", "inputs", "other entry"),
        ("components", "pipeline.components", lambda all_of: all_of[1:]),
        ("index", "pipeline.source.path", "another index"),
        *TEXTS,
        *SAMPLED,
        *CONTROL,
        ("t5_tokens", "pipeline.t5_tokens", 8),
        ("vae_tiling", "pipeline.vae_tiling", True),
        *DEVICE,
    ],
    "question": [
        ("recipe", "component.recipe", "controlnet"),
        ("checkpoint", "component.source.seed", 1),
        ("options", "component.options", (("depth", 1),)),
        *SAMPLE,
    ],
    "drawing question": [
        *DRAWN,
        *SAMPLED,
        ("checkpoints", "pipeline.components", lambda all_of: all_of[1:]),
        ("t5_tokens", "pipeline.t5_tokens", 8),
        ("vae_tiling", "pipeline.vae_tiling", True),
    ],
}
"""Each kind of entry to triples: a field of its key, what decides it, and a move."""


@pytest.fixture
def real(given, tmp_path):
    """Return what stands for the words of `MOVES` that need files."""

    def checkpoint(name):
        home = tmp_path / "checkpoint"
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


def field_of(key, field):
    name, _, part = field.partition(".")
    return key[name].get(part) if part else key[name]


@pytest.mark.parametrize(
    ("kind", "move"),
    [
        pytest.param(kind, move, id="-".join((kind, *move[:2])))
        for kind, moves in MOVES.items()
        for move in moves
    ],
)
def test_whatever_decides_an_entry_is_in_its_key(given, real, kind, move):
    field, path, value = move
    here = keys_of(given)[kind]()
    there = keys_of(moved(given, path, real(value)))[kind]()

    assert digest_value(there) != digest_value(here)
    if "question" not in kind:  # which is a digest already
        assert field_of(there, field) != field_of(here, field)


def planned(given, name, text):
    (path := given.folder / name).write_text(text, encoding="utf-8")
    flag = f"--file={name}"
    variant = replace(given.variant, flags=(flag,), files=((flag, path),))
    return keys.variant_key(given.graph, variant, None)


def test_the_contents_of_a_flags_file_decide_and_its_name_does_not(given):
    one, same, other = (
        planned(given, *file) for file in (("a", "1"), ("b", "1"), ("a", "2"))
    )

    assert one == same != other


@pytest.mark.parametrize("kind", [kind for kind in MOVES if "question" not in kind])
def test_every_field_of_a_key_is_moved_once(given, kind):
    nested = {"component", "export", "device", "control", "sampling", "sample", "spot"}
    fields = {"sample.knobs"} if kind == "inputs" else set()  # left out when empty
    for name, value in keys_of(given)[kind]().items():
        inner = isinstance(value, dict) and name in nested
        fields |= {f"{name}.{part}" for part in value} if inner else {name}

    apart = {"code", "tools", "component.drawn_on"}  # they have tests of their own
    assert {field for field, _, _ in MOVES[kind]} == fields - apart


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
def test_a_checkpoint_is_its_configuration_weights_and_words(
    given, tmp_path, name, recipe
):
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


def test_a_checkpoint_with_a_lora_is_another_at_each_scale(given):
    plain = digests(given, "weights")
    file = given.folder / "lora.safetensors"
    merged = moved(given, "component.source.lora", file)
    half = moved(merged, "component.source.lora_scale", 0.5)

    assert len({plain, digests(merged, "weights"), digests(half, "weights")}) == 3


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
        found.add(digest_value(keys.onnx_key(part, ExportSettings(), dict(SHAPES))))

    assert len(found) == 1


def test_a_file_that_is_its_own_reference_depends_on_what_runs_it(given):
    alone = moved(given.foreign, "recipe", "given")

    keys_alone = (
        keys.onnx_key(alone, given.settings, {}),
        keys.asked_key(alone, (), given.device),
    )

    assert all("onnxruntime" in str(key["reference"]) for key in keys_alone)
    assert "reference" not in keys.onnx_key(given.foreign, given.settings, {})
