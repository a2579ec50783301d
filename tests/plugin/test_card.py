"""`parity card` and `parity verify`: what a receiver can check without PyTorch."""

import json
import os
import re
import shutil
import zipfile

import numpy as np
import pytest

from harness.plugins.card.form import ARRAYS, CARD, _digest_of, digest, load_card
from tests.bombs import add_zeros, measured, npy
from tests.plugin.project import MAKING, PARITY, parity_without

CASES = (
    "vae_decoder/mnn/fp32",
    "vae_decoder/mnn/int8-weights",
    "vae_decoder/onnxruntime/fp32",
)


@pytest.fixture(scope="module")
def made(passing, store, tmp_path_factory):
    """A project with a card of its run, and a folder with the files that it ships."""
    project = passing[0].branch(tmp_path_factory.mktemp("card") / "project")
    within = 'outputs = { tier = "quantized", within = "self-bf16" }'
    project.change("tolerances.toml", 'outputs = "quantized"', within)
    runs = project.path / "reports" / "runs"
    assert project.parity("run", "--runs", str(runs)).code == 0
    ended = project.parity("card").check(0)
    card, _ = load_card(project.path / "card")
    wanted = {file.sha256: file for case in card.cases for file in case.files}
    ship = project.path / "ship"
    ship.mkdir()
    sizes = {file.size_bytes for file in wanted.values()}
    for path in store.rglob("*"):
        if path.is_file() and path.stat().st_size in sizes:
            name = digest(path)
            if name in wanted:
                shutil.copy(path, ship / f"{name[:8]}{path.suffix}")
    return project, ended


@pytest.fixture
def received(made, tmp_path):
    """What a receiver has: a card, and files under other names."""
    return made[0].branch(tmp_path / "received")


def test_a_card_says_what_was_compared_and_how_to_check_it(made):
    project, ended = made

    assert ended.has("3 cases, 3 of them can be checked elsewhere")
    text = (project.path / "card" / "card.md").read_text()
    assert text.startswith("## Numerical parity with PyTorch\n\n3 of 3 ways to run ")
    for case in CASES:
        assert re.search(rf"\| `{case}` \| .* floors, \d+ dB \| \d+%: .+ \| ", text)
    assert "torch 2." in text
    assert re.search(r"- Command: `.*\brun --runs PATH", text)
    for name in ("card.md", CARD):
        assert str(project.path) not in (project.path / "card" / name).read_text()
    assert "`parity verify card FOLDER`" in text
    signed = json.loads((project.path / "card" / CARD).read_text())["digest"]
    assert f"Digest of `card.json`: `{signed}`" in text


def test_a_receiver_gets_the_same_numbers_without_pytorch(received):
    ended = parity_without(received, MAKING, "verify", "card", "ship").check(0)
    for case in CASES:
        assert ended.has(f"yes {case} ")
    assert ended.has("yes: 3 cases with the files of the card and outputs within its")


@pytest.mark.parametrize(
    ("cases", "code", "words"),
    [
        ((), 0, "outputs within its bounds; 2 cases did not run here"),
        (("vae_decoder/mnn",), 2, "cannot say: no case was checked"),
    ],
)
def test_without_a_runtime_the_others_alone_are_checked(received, cases, code, words):
    parity_without(received, ["MNN"], "verify", "card", "ship", *cases).check(
        code, "not run vae_decoder/mnn/fp32 MNN is not installed: pip install ", words
    )


def test_a_file_that_changed_by_one_bit_is_another_file(received):
    (path,) = (p for p in (received.path / "ship").glob("*.onnx"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    received.parity("verify", "card", "ship", "vae_decoder/onnxruntime").check(
        1,
        "no vae_decoder/onnxruntime/fp32 ship has no file of ",
        "no: 1 of 1 are not as the card says",
    )


def sign_again(folder, change):
    """Change a card and sign it again, as a dishonest author would."""
    path = folder / CARD
    card = json.loads(path.read_text())["card"]
    change(card)
    path.write_text(json.dumps({"digest": _digest_of(card), "card": card}))


def test_numbers_beyond_the_bound_on_this_machine_are_a_no(received):
    def tighten(card):
        for case in card["cases"]:
            for output in case["outputs"]:
                output["tolerance"] = {"floors": 0.01, "share": 1.0}

    sign_again(received.path / "card", tighten)
    received.parity("verify", "card", "ship").check(
        1, "floors, allowed 0.01", "no: 3 of 3 are not as the card says"
    )


def edit(old, new):
    """Change the text of a card, and not its signature."""

    def change(card):
        path = card / CARD
        path.write_text(path.read_text().replace(old, new, 1))

    return change


def lie(change):
    """Change the first case of a card, and sign the card again."""
    return lambda card: sign_again(card, lambda told: change(told["cases"][0]))


def other_arrays(card):
    with (card / ARRAYS).open("ab") as file:
        file.write(b"more")


def objects(card):
    with np.load(card / ARRAYS) as stored:
        arrays = {name: np.array([None], dtype=object) for name in stored}
    np.savez(card / ARRAYS, **arrays)
    sign_again(card, lambda told: told.update(arrays=digest(card / ARRAYS)))


UNTRUSTED = {
    "edited": (
        edit('"passed": true', '"passed": false'),
        "card.json was edited: its digest is not ",
    ),
    "newer": (
        edit('"format": 1', '"format": 2'),
        "has format 2 and this harness reads 1; install a newer",
    ),
    "other arrays": (
        other_arrays,
        "card.npz is not the one of this card; copy it again",
    ),
    "absent": (shutil.rmtree, "cannot be read (No such file or directory)"),
    "another file": (
        lambda card: (card / CARD).write_text("[]"),
        "is no parity card",
    ),
    "outside": (
        lie(lambda case: case["files"][0].update(name="../../mine.onnx")),
        "names the file '../../mine.onnx', and MNN's are model.mnn and",
    ),
    "no outputs": (
        lie(lambda case: case.update(outputs=[])),
        "has files and no outputs to compare; ask its author",
    ),
    "no array": (
        lie(lambda case: case["outputs"][0].update(expected="other")),
        "names the array 'other', of which card.npz has no numbers",
    ),
    "no runtime": (
        lie(lambda case: case.update(backend="other")),
        "runs in 'other', and this harness knows onnxruntime, mnn",
    ),
    "objects": (objects, "it holds object, and only numbers are read"),
}


@pytest.mark.parametrize("what", UNTRUSTED)
def test_a_card_that_cannot_be_trusted_is_refused(received, what):
    change, words = UNTRUSTED[what]
    change(received.path / "card")

    received.parity("verify", "card", "ship").check(2, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("card", "nowhere"), "nowhere is no folder; give the one that has the"),
        (("card", "ship", "unet"), "the card has no case 'unet'; it has vae_decoder/"),
    ],
)
def test_what_is_not_there_is_one_sentence(received, arguments, words):
    received.parity("verify", *arguments).check(2, words)


def test_a_card_that_is_there_is_left_alone(made):
    made[0].parity("card").check(2, "card is there already; give another with --out")


def test_a_card_is_of_the_files_that_were_measured(made, tmp_path):
    project = made[0].branch(tmp_path / "moved")
    shutil.rmtree(project.path / "card")
    assert project.parity("run", CASES[1]).code == 0
    project.change("parity.toml", "seed = 0", "seed = 1")

    project.parity("card").check(2, "deploys another file now than the run measured")

    assert not (project.path / "card").exists()


def test_a_base_install_says_what_a_run_needs(received):
    parity_without(received, ["torch", "tomlkit"], "tune").check(
        2, 'which is not installed; pip install "parity-harness[make]"'
    )


# What a hostile author tries


ORT, MNN = "vae_decoder/onnxruntime/fp32", "vae_decoder/mnn/fp32"


def one_case(card, of):
    """Return the case of a card with this id."""
    return next(case for case in card["cases"] if case["case"] == of)


def add_file(folder, name, path):
    """Have a card name a file that the receiver has, and sign it again."""
    there = {"name": name, "sha256": digest(path), "size_bytes": path.stat().st_size}
    sign_again(folder, lambda card: one_case(card, ORT)["files"].append(there))


def plant(folder, seen):
    """Write modules that leave a file when they are imported."""
    names = (
        "numpy",
        "json",
        "__future__",
        "hashlib",
        "typing",
        "onnxruntime",
        "driver",
    )
    for name in names:
        text = f"open({str(seen)!r}, 'a').write(__name__)\n"
        (folder / f"{name}.py").write_text(text)


@pytest.mark.parametrize(
    "name", ["numpy.py", "model-0/numpy.py", "onnxruntime.py", "model-0/../numpy.py"]
)
def test_a_file_of_a_card_is_never_imported(received, name):
    seen = received.path / "seen"
    plant(received.path / "ship", seen)
    add_file(received.path / "card", name, received.path / "ship" / "numpy.py")

    received.parity("verify", "card", "ship", ORT).check(2, f"names the file '{name}'")

    assert not seen.exists()


def test_nothing_beside_the_files_of_a_card_is_imported(received, monkeypatch):
    for folder in ("ship", "card", "."):
        plant(received.path / folder, received.path / "seen")
    monkeypatch.setenv("PYTHONPATH", f":{received.path}")
    monkeypatch.setenv("PYTHONSTARTUP", str(received.path / "numpy.py"))

    received.parity("verify", "card", "ship", ORT).check(0, f"yes {ORT}")

    assert not (received.path / "seen").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("bundle.json", "feeds.npz", "run.py", "driver.py"),
        *("model-0/bundle.json", "model-0", "model-0/weights.pb/..", "trace.npz"),
    ],
)
def test_no_text_of_a_card_is_written_into_a_file_of_the_receiver(received, name):
    mine = received.path / "ship" / "mine.txt"
    mine.write_text("mine")
    add_file(received.path / "card", name, mine)

    received.parity("verify", "card", "ship", ORT).check(
        2, "ask its author for another"
    )

    assert mine.read_text() == "mine"


def test_two_files_of_one_name_are_refused(received):
    mine = received.path / "ship" / "mine.txt"
    mine.write_text("mine")
    add_file(received.path / "card", "model-0/model.onnx", mine)

    received.parity("verify", "card", "ship", ORT).check(2, "has two files of one name")


def call(of, at=0, **changes):
    """Change a call of a case: its own fields, and its arguments by ``said_``."""

    def change(card):
        case = one_case(card, of)
        bundle = json.loads(case["bundle"])
        for name, value in changes.items():
            if name.startswith("said_"):
                bundle["calls"][at]["said"][name.removeprefix("said_")] = value
            else:
                bundle["calls"][at][name] = value
        case["bundle"] = json.dumps(bundle)

    return change


def of_bundle(of, **changes):
    """Change what the bundle of a case says about itself."""

    def change(card):
        case = one_case(card, of)
        case["bundle"] = json.dumps(json.loads(case["bundle"]) | changes)

    return change


CALLS = {
    "a profile": call(ORT, said_profile="OUT"),
    "an argument": call(ORT, said_optimized_model_filepath="OUT/x.onnx"),
    "a path": call(ORT, said_model="OUT/x.onnx"),
    "a file outside": call(ORT, said_model="bundle:../../x.onnx"),
    "a file outside the folder": call(ORT, said_model="bundle:model-0/.."),
    "another file": call(ORT, said_model="bundle:model-1/model.onnx"),
    "another folder": call(ORT, said_folder="OUT"),
    "a folder outside": call(ORT, said_folder="bundle:.."),
    "a graph in an array": call(ORT, said_model="", feeds={"model": "x"}),
    "an option": call(ORT, said_settings={"use_arena": "0"}),
    "an option with a path": call(
        ORT,
        said_provider="CoreMLExecutionProvider",
        said_settings={"ModelCacheDirectory": "OUT"},
    ),
    "a library": call(
        ORT,
        said_provider="QNNExecutionProvider",
        said_settings={"backend_path": "OUT/x.so"},
    ),
    "a value with a path": call(
        ORT,
        said_provider="OpenVINOExecutionProvider",
        said_settings={"device_type": "../OUT"},
    ),
    "a provider": call(ORT, said_provider="../x"),
    "a rewrite": call(ORT, said_left_out=["x"]),
    "a level": call(ORT, said_level=3),
    "threads": call(ORT, said_threads=10**9),
    "no threads": call(ORT, said_threads="many"),
    "a method": call(ORT, do="end_profiling", said={}),
    "an attribute": call(ORT, do="__init__", said={}),
    "an array": call(ORT, 1, feeds={"x": "y"}),
    "a kind": call(ORT, 1, kind="other"),
    "a field": call(ORT, 1, other=1),
    "a method of MNN": call(MNN, 1, do="close", said={}),
    "a watched run of MNN": call(
        MNN, 1, do="watch", said={"wanted": {}, "made": {}, "suffix": ""}
    ),
    "a setting of MNN": call(
        MNN,
        said_config={
            "backend": "CPU",
            "precision": "high",
            "numThread": 1,
            "cacheFile": "OUT/x",
        },
    ),
    "a device of MNN": call(
        MNN, said_config={"backend": "x", "precision": "high", "numThread": 1}
    ),
    "a hint of MNN": call(MNN, said_hints=[[99, 1]]),
    "a path of MNN": call(MNN, said_model="OUT/x.mnn"),
    "layers": of_bundle(ORT, layers="all"),
    "other files": of_bundle(ORT, files={}),
    "a path of a bundle": of_bundle(ORT, files={"../x": "0" * 64}),
    "another format": of_bundle(ORT, format=2),
    "calls without end": of_bundle(ORT, calls="x"),
    "no bundle": lambda card: one_case(card, ORT).update(bundle=""),
    "a deep bundle": lambda card: one_case(card, ORT).update(bundle="[" * 10**5),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_no_card_needs_is_refused(received, what):
    """And nothing is written."""
    out = received.path / "out"
    out.mkdir()
    sign_again(received.path / "card", CALLS[what])
    card = received.path / "card" / CARD
    sign_again(card.parent, lambda told: told.update(facts=[["out", str(out)]]))
    text = card.read_text().replace("OUT", str(out))
    card.write_text(text)
    sign_again(card.parent, lambda _: None)

    received.parity("verify", "card", "ship", "vae_decoder").check(2, "card")

    assert not [*out.iterdir()]


def test_the_values_of_a_provider_that_name_no_file_are_taken(received):
    """This machine lacks the provider, so the case does not run."""
    options = {"backend_type": "htp", "vtcm_mb": 8}
    provider = "QNNExecutionProvider"
    change = call(ORT, said_provider=provider, said_settings=options)
    sign_again(received.path / "card", change)

    received.parity("verify", "card", "ship", ORT).check(
        2, f"not run {ORT}", "was asked for QNNExecutionProvider and has "
    )


def test_a_card_for_a_device_that_is_not_here_is_not_run(received):
    """MNN takes the CPU instead, and does not say so."""
    config = {"backend": "CUDA", "precision": "high", "numThread": 2}
    case = "vae_decoder/mnn/fp32"
    sign_again(received.path / "card", call(case, said_config=config))

    received.parity("verify", "card", "ship", case).check(
        2, f"not run {case}", "was asked for CUDA and runs on CPU"
    )


def declares(card, keys):
    with zipfile.ZipFile(card / ARRAYS, "w") as file:
        for key in keys:
            file.writestr(f"{key}.npy", npy((2**45,)))


def unpacks(card, keys):
    with zipfile.ZipFile(card / ARRAYS, "w") as file:
        for key in keys:
            add_zeros(file, key, (2**31,))


def lies(card, keys):
    """One array says at the end of the file that it is small."""
    with zipfile.ZipFile(card / ARRAYS, "w") as file:
        for key in keys:
            add_zeros(file, key, (2**31,))
            file.filelist[-1].file_size = 1000


def pipes(card, keys):
    del keys
    (card / ARRAYS).unlink()
    os.mkfifo(card / ARRAYS)


@pytest.mark.parametrize("how", [declares, unpacks, lies, pipes])
def test_arrays_without_end_are_a_sentence_and_no_memory(received, how):
    card = received.path / "card"
    with np.load(card / ARRAYS) as stored:
        keys = list(stored)
    how(card, keys)
    if how is not pipes:
        sign_again(card, lambda told: told.update(arrays=digest(card / ARRAYS)))

    command = (*PARITY, "verify", "card", "ship")
    code, text, memory = measured(command, received.path)

    assert code == 2, text
    assert len(text.splitlines()) == 1
    assert "card is not a whole card (" in text
    assert memory < 512 << 20


def test_a_long_card_is_a_sentence_and_no_memory(received):
    path = received.path / "card" / CARD
    path.write_text("[" + "{}," * (20 << 20))

    command = (*PARITY, "verify", "card", "ship")
    code, text, memory = measured(command, received.path)

    assert code == 2, text
    assert "is no parity card (it has more than 8,388,608 bytes)" in text
    assert memory < 512 << 20
