"""`parity card` and `parity verify`: what a receiver can check without PyTorch."""

import json
import re
import shutil

import numpy as np
import pytest

from harness.report.card.form import ARRAYS, CARD, _digest_of, digest, load_card
from tests.plugin.project import MAKING, parity_without

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
