"""What fuzzers have found, as cases: one value of a healthy file is another one.

Each, or a neighbour of it, was a traceback or worse when it was found. The healthy
files are those of a real run, so the first case takes some seconds.
"""

import json
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from random import Random

import pytest

from harness.core.errors import ParityError
from harness.plugins.card import verify
from tests.fuzz import agents, formats, loop, models
from tests.fuzz.loop import Trouble, check_shown
from tests.watch import watched

DEEP = "[" * 5000 + "]" * 5000
HUGE = "1" + "0" * 400
SPIN = "import time\nwhile time.process_time() < 0.6: pass"

VALUES = {
    "report": [
        ("suites.0.files", "3"),
        ("suites.0.path", '"/x"'),
        ("suites.0.path", '"~nobody-of-this-name/parity.toml"'),
        ("environment", "[]"),
        ("environment.packages", '{"a": 3}'),
        ("verdicts.0.suite", '"/elsewhere"'),
        ("verdicts.0.reason", '"\\u001b]0;title\\u0007"'),
        ("verdicts.0.outcome", '"no such"'),
        ("cases.0.contract", '[{"x": 1}]'),
        ("cases.0.graphs", '[{"x": 1}]'),
        ("cases.0.rows.sample", "[]"),
        ("cases.0.rows.probe", "[99999]"),
        ("cases.0.took_s", '{"onnx": null}'),
        ("cases.0.asked", '{"hints": [[]]}'),
        ("cases.0.asked", '{"device": "cpu", "new": [[], 3, [1, 2, 3]]}'),
        ("cases.0.ran", "3"),
        ("benchmarks", '[{"case": 3}]'),
        ("id", DEEP),
        ("id", HUGE),
        ("id", '"../../outside/x"'),
    ],
    "baseline": [
        ("accepted", "null"),
        ("accepted.when", '"yesterday"'),
        ("accepted.who", '"\\u001b[2J"'),
        ("cases.0.rows.probe", "[-1]"),
        ("verdicts", "{}"),
        ("id", DEEP),
    ],
    "card": [
        ("format", HUGE),
        ("format", "null"),
        ("cases", DEEP),
        ("cases.0.case", '"a\\u0007b"'),
        ("cases.0.case", f'"{"x" * 5000}"'),
        ("cases.0.files.0.name", '"../../outside/there"'),
        ("cases.0.files.0.name", '"numpy.py"'),
        ("cases.0.outputs.0.floor_rms", '"NaN"'),
        ("cases.0.bundle", '"[]"'),
    ],
    "trace": [
        ("case", "null"),
        ("samples", "[]"),
        ("entries", "null"),
        ("files", '{"model.onnx": 3}'),
        ("log", "3"),
        ("settings", "3"),
        ("values", "null"),
        ("values.0", "{}"),
        ("values.0.array", '"about"'),
        ("values.0.shape", "[35184372088832]"),
        ("values.0.sketched", '"yes"'),
        ("name", DEEP),
    ],
}


def placed(text, path, value):
    """JSON in which the value at a path is another text."""
    told = json.loads(text)
    *parents, last = path.split(".")
    inner = told
    for key in parents:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[int(last) if isinstance(inner, list) else last] = "@value@"
    return json.dumps(told).replace('"@value@"', value)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folders that a format works in; all that is temporary goes there too."""
    for name in ("in", "outside", "work", "tmp", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "there").write_text("as it was")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "home" / "store"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


@pytest.fixture
def opened(healthy, place):
    """A format by name, ready to write a file and have it read."""

    def made(name):
        kinds = formats.formats()
        form = kinds[name](healthy, place)
        form.begin()
        form.change(Random(name))
        form.is_dump = False
        return form

    return made


def read(form, place, draws=6):
    """Have a file read by some of the commands; each does what it may."""
    for draw in range(draws):
        form.rng = Random(draw)
        with (
            watched(*form.writable, place / "tmp", place / "home") as seen,
            suppress(*form.allowed),
        ):
            form.call()
        assert seen.strange == []
    assert (place / "outside" / "there").read_text() == "as it was"


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [(name, *one) for name, cases in VALUES.items() for one in cases],
    ids=lambda text: text[:30],
)
def test_one_other_value_ends_in_a_sentence(opened, place, name, path, value):
    form = opened(name)
    seeds = {"report": "told", "baseline": "kept", "trace": "about"}
    told = form.signed["card"] if name == "card" else getattr(form, seeds[name])
    form.write(placed(json.dumps(told), path, value).encode())
    read(form, place)


def test_a_baseline_that_unpacks_to_more_than_any_has_is_refused_at_once(opened, place):
    form = opened("baseline")
    form.write_packed(lzma.compress(b" " * (300 << 20), preset=0))
    read(form, place, draws=2)


def test_a_pipe_in_a_dump_is_not_waited_for(opened, place):
    form = opened("trace")
    form.is_dump = True
    form.anew()
    (form.files / "trace.npz").mkdir()
    formats.os.mkfifo(form.files / "trace.npz" / "pipe.npy")
    read(form, place, draws=1)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("unet/config.json", '{"in_channels": NaN}'),
        ("unet/config.json", DEEP),
        ("unet/config.json", '{"block_out_channels": 3}'),
        ("unet/config.json", '{"down_block_types": [null, 3]}'),
        ("vae/config.json", '{"block_out_channels": []}'),
        ("vae/config.json", '{"_class_name": ["\\u001b[2J"]}'),
        ("vae/config.json", f'{{"latent_channels": {HUGE}}}'),
        ("scheduler/scheduler_config.json", '{"_class_name": null}'),
        ("scheduler/scheduler_config.json", "{"),
        ("scheduler/scheduler_config.json", "[]"),
        ("model_index.json", '{"../../x": ["diffusers", "X"]}'),
        ("model_index.json", f'{{"{"x" * 300}": ["diffusers", "X"]}}'),
        ("tokenizer/tokenizer_config.json", DEEP),
    ],
    ids=lambda text: text[:30],
)
def test_a_configuration_ends_in_a_sentence(opened, place, file, text):
    form = opened("checkpoint")
    home = form.anew("net")
    for path in form.homes["digits"].rglob("*"):
        into = home / path.relative_to(form.homes["digits"])
        if path.is_file() and path.suffix in {".json", ".txt", ".safetensors"}:
            into.parent.mkdir(parents=True, exist_ok=True)
            into.symlink_to(path)
    (home / file).unlink()
    (home / file).write_text(text)

    read(form, place, draws=1)


@pytest.mark.parametrize(
    ("home", "file", "keys"),
    [
        ("flux", "transformer", {"pooled_projection_dim": None}),
        ("flux", "transformer", {"joint_attention_dim": None}),
        ("flux", "transformer", {"in_channels": None}),
        ("sd3", "transformer", {"patch_size": [1, 2]}),
        ("sd3", "transformer", {"patch_size": None}),
        ("sdxl", "controlnet", {"layers_per_block": [1, 1]}),
        ("sdxl", "controlnet", {"layers_per_block": 2**31 - 1}),
        ("sdxl", "controlnet", {"block_out_channels": [8] * 3000}),
        ("sdxl", "unet", {"projection_class_embeddings_input_dim": 1}),
        ("sdxl", "unet", {"cross_attention_dim": [8, 8]}),
        ("sdxl", "text_encoder", {"max_position_embeddings": -4}),
        ("digits", "vae", {"block_out_channels": None}),
        ("pixart", "transformer", {"sample_size": None}),
        ("roberta", "", {"pad_token_id": [1, 2]}),
        ("bert", "", {"hidden_size": None}),
        ("bert", "", {"hidden_act": ["gelu"]}),
        ("bert", "", {"model_type": {}}),
        ("sdxl", "unet", {"in_channels": 4, "time_cond_proj_dim": [8]}),
        ("bert", "", {"num_attention_heads": None, "num_heads": "many"}),
    ],
    ids=str,
)
def test_another_key_of_a_configuration_is_a_sentence(opened, place, home, file, keys):
    form = opened("checkpoint")
    folder = form.anew("net")
    shutil.copytree(form.homes[home], folder, dirs_exist_ok=True)
    path = folder / file / "config.json"
    told = json.loads(path.read_text())
    assert told.keys() & keys.keys()
    path.write_text(json.dumps(told | keys))
    read(form, place, draws=1)


@pytest.mark.parametrize(
    "about",
    [
        "[" * 5000,
        '{"unet.alpha_pattern": {"(a+)+$": 4}}',
        '{"unet.alpha_pattern": {"(": 4}}',
        '{"unet.alpha_pattern": {"a*a*a*a*a*": 4}}',
        '{"unet.lora_alpha": "x"}',
        '{"unet.lora_alpha": NaN}',
    ],
)
def test_what_a_lora_says_of_its_scale_ends_in_a_sentence(opened, about):
    form = opened("safetensors")
    form.put({**form.head, "__metadata__": {"lora_adapter_metadata": about}})
    with pytest.raises(ParityError, match=r"What the header of .* cannot be read"):
        form.call()


def test_halves_of_a_lora_that_cannot_be_multiplied_are_refused(opened):
    """Their product would have 10^10 numbers before its shape is looked at."""
    form = opened("safetensors")
    pairs = [key for key in form.head if "lora_A" in key or ".down." in key]
    head = dict(form.head)
    for key in pairs:
        rows, width = head[key]["shape"]
        head[key] = {**head[key], "shape": [width, rows]}
    form.put(head)

    with pytest.raises(ParityError, match="does not have in that shape"):
        form.call()


@pytest.mark.parametrize(
    "told",
    [
        '{"head": {"done": {}}, "arrays": []}',
        '{"head": {"done": null}, "arrays": []}',
        '{"head": [], "arrays": []}',
        '{"head": {"done": {}}}',
        '{"head": {"failed": "\\u001b[2J"}, "arrays": []}',
        '{"head": {"value": "a"}, "arrays": [["a", "<f4", [35184372088832]]]}',
        '{"head": {"value": "a"}, "arrays": [["a", "|O", [2]]]}',
        '{"head": {"value": "a"}, "arrays": [["a", "<f4", [-2]]]}',
        DEEP,
    ],
    ids=lambda text: text[:80],
)
def test_a_frame_of_a_target_ends_in_a_sentence(opened, place, told):
    form = opened("target")
    text = told.encode()
    data = agents.struct.pack(">I", len(text)) + text
    ready = f"\n{agents.agent.READY} 3.11\n".encode()
    (form.files / "sent").write_bytes(ready + data)
    read(form, place, draws=1)


def test_what_a_healthy_target_sends_is_answered(opened):
    """Otherwise the fuzzer of what a target sends would never come to its end."""
    form = opened("target")
    form.write(b"".join(agents.healthy()))
    form.call()
    assert form.sound


@pytest.mark.parametrize("log", [b"\x1b[2J", b"\xff" * 5000])
def test_the_log_of_a_target_is_shown_as_any_other_text(opened, place, log):
    form = opened("target")
    form.write(b"".join((*agents.healthy(), log)))
    read(form, place, draws=1)


def test_a_bundle_whose_runtime_aborts_ends_as_a_process_of_its_own(opened, place):
    """ONNX Runtime takes no null for a folder, and ends the process that gives it."""
    form = opened("bundle")
    said = json.loads(json.dumps(form.said))
    said["calls"][0]["said"]["folder"] = None
    (form.files / "bundle.json").write_text(json.dumps(said))
    (form.files / "feeds.npz").write_bytes(form.whole)
    assert form.ends_so(place)


def test_a_sound_bundle_is_no_excuse_for_a_process_that_ends(opened, place):
    form = opened("bundle")
    (form.files / "bundle.json").write_text(json.dumps(form.said))
    (form.files / "feeds.npz").write_bytes(form.whole)
    assert not form.ends_so(place)


def test_a_card_with_a_case_that_stands_twice_is_refused(opened):
    """A hundred copies of a case would run for minutes."""
    form = opened("card")
    told = json.loads(json.dumps(form.signed["card"]))
    told["cases"] *= 2
    form.write(json.dumps(told).encode())
    code, said = form.parity("verify", str(form.files / "card"), str(form.ship))
    assert code == 2
    assert "stands twice" in said


def test_a_card_whose_runtime_aborts_is_answered_with_no(tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text("import os\ndef open_driver():\n    os.abort()\n")
    done = verify._run(tmp_path, driver, tmp_path / "trace.npz")
    assert verify._failed(done, "ONNX Runtime") == (
        verify.NO,
        "ONNX Runtime fails: crashes by SIGABRT",
    )


@pytest.mark.parametrize("draw", range(40))
def test_a_changed_place_of_weights_can_be_written_into_a_file(opened, draw):
    form = opened("onnx")
    message = type(form.protos["external.onnx"])()
    message.CopyFrom(form.protos["external.onnx"])
    form._external(Random(draw), message)
    assert message.SerializeToString()


@pytest.mark.parametrize("path", ["x" * 300, "a/" * 3000, "~nobody-of-this-name/x"])
def test_a_checkpoint_at_no_path_ends_in_a_sentence(opened, path):
    form = opened("toml")
    for name, text in form.texts.items():
        (form.files / name).write_text(text)
    text = re.sub(
        'checkpoint = ".*"', f'checkpoint = "{path}"', form.texts["parity.toml"]
    )
    (form.files / "parity.toml").write_text(text)

    with pytest.raises(ParityError, match="nothing can be read at this path"):
        form.call()


def spin(seconds):
    """Use a processor for some seconds."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


CALLS = {
    "it computes": (lambda: spin(0.6), "processor time"),
    "a child computes": (
        lambda: subprocess.run([sys.executable, "-c", SPIN], check=True),
        "processor time",
    ),
    "it waits": (lambda: time.sleep(1.2), "waiting"),
    "it waits a little": (lambda: time.sleep(0.6), ""),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_slow_call_is_one_that_computes_or_waits_for_long(monkeypatch, name):
    """The time that other work has the processor counts as waiting."""
    monkeypatch.setattr(loop, "LIMIT_S", 0.4)
    monkeypatch.setattr(loop, "WAIT_S", 0.9)
    call, words = CALLS[name]
    spent = loop._Spent()
    call()
    assert words in spent.words
    assert bool(words) == bool(spent.words)


@pytest.mark.parametrize("number", ["18446744073709551616", "1e999", "nan", "-1"])
def test_a_number_of_samples_that_nobody_has_ends_in_a_sentence(opened, place, number):
    form = opened("toml")
    text = form.texts["parity.toml"].replace("realistic = 1", f"realistic = {number}")
    (form.files / "parity.toml").write_text(text)
    read(form, place, draws=1)


def test_a_toml_file_that_nobody_wrote_by_hand_is_refused(opened):
    """Its reader would take more than a gigabyte."""
    form = opened("toml")
    text = f'x = "{"y" * 10_000_000}"'
    (form.files / "tolerances.toml").write_text(text)
    (form.files / "parity.toml").write_text(form.texts["parity.toml"])
    with pytest.raises(ParityError, match="more than 4,194,304 bytes"):
        form.call()


def test_a_piece_of_a_file_with_a_gap_before_it_is_refused(place):
    """A file of 32 TB of zeros would be read to its end."""
    piece = agents.ARRAYS["piece"]
    with pytest.raises(OSError, match="out of order"):
        agents.agent.Files().put("a" * 64, 1 << 45, (1 << 45) + 4, piece)
    files = [path for path in place.rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) < 1000


def test_a_text_that_steers_a_terminal_is_found():
    with pytest.raises(Trouble, match="title"):
        check_shown("\x1b]0;title\x07", "a test")


def test_the_formats_are_those_of_the_table():
    assert tuple(formats.formats()) == formats.NAMES
    assert models.SafetensorsFormat.name in formats.NAMES
