"""What pages show of a screen is what their commands print, but for the numbers.

The commands run on a copy of fixtures/digits, as the tutorial has it. A page may leave
lines out, and `…` stands for a part of a line.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.places import DIGITS, ROOT
from tests.plugin.project import PARITY, Project
from tests.plugin.test_docs import TRIED

BLOCK = re.compile(r"(?ms)^ *```(?:text|console)\n(.*?)^ *```$")
NUMBER = re.compile(r"[-+]?\d[\d.,:T-]*(?:e[-+]?\d+)?%?|the same(?=,|$)", re.MULTILINE)
FEW = ("text_encoder", "vae_decoder")
UNTRIED = {
    "docs/plan.md": {"plan unet --backend onnxruntime --within sqnr_db=50": "minutes"},
    "docs/release.md": {"gate last --baseline digits": "of a version that is to come"},
    "docs/ci.md": {"diff --last 3": "of a version that is to come"},
    "docs/browser.md": {
        "target make browser": "npm brings a package; tests/plugins/browser does it",
    },
    "docs/targets.md": {
        "target make arm64 --cpu cortex-a76": "it downloads; tox -e targets does it",
        "judge dump/ --case vae_decoder/onnxruntime/fp32 --names names.toml": (
            "it needs an app; tests/plugin/test_elsewhere.py has dumps"
        ),
    },
}
"""Screens that no test types, with the reason."""


def masked(text):
    """Return a text without numbers, and with one blank for each space."""
    return " ".join(NUMBER.sub("#", text).split())


def unseen(page, printed):
    """Return the lines of a page that a command has not printed."""
    whole = masked(printed)
    parts = [
        part for line in page.splitlines() for part in masked(line).split("…") if part
    ]
    return [part for part in parts if part.strip() not in whole]


def screens(name):
    """Return the lines below each command of a page, by the command."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = {}
    for block in BLOCK.findall(text):
        for part in re.split(r"(?m)^ *\$ ", block)[1:]:
            command, _, lines = part.partition("\n")
            found.setdefault(command.removeprefix("parity "), []).append(lines)
    return {command: all_ for command, all_ in found.items() if any(all_)}


class Pages:
    """A suite, in which commands of pages are typed."""

    def __init__(self, folder):
        self.project = Project(folder, limit_s=600)

    def type(self, command):
        return self.project.run(*PARITY, *shlex.split(command)).text

    def shows(self, page, command, *more, at=0):
        printed = self.type(" ".join([command, *more]))
        missing = unseen(screens(page)[command][at], printed)
        assert not missing, f"{page} shows {missing}; it is {printed}"
        return printed


@pytest.fixture(scope="module")
def pages(store, tmp_path_factory):  # noqa: ARG001  # it is filled
    """Do what the tutorial says, up to its gate."""
    folder = tmp_path_factory.mktemp("pages") / "mine"
    shutil.copytree(DIGITS, folder / "checkpoint")
    here, page = Pages(folder), "docs/tutorial.md"
    here.shows(page, "doctor")
    here.shows(page, "init checkpoint --no-measure")
    suite = folder / "parity.toml"
    text = suite.read_text()
    text = re.sub(
        r"components = \[.*?\]", f"components = {[*FEW]}", text, flags=re.DOTALL
    )
    text = re.sub(r"(?ms)^\[pipeline\..*?(?=^\[(?!pipeline))", "", text)
    suite.write_text(text.replace('# "fused"', '"fused"'))
    here.shows(page, "tune --prune --write")
    here.failed = here.shows(page, "run")
    here.shows(page, "explain text_encoder/mnn/fused")
    suite.write_text(suite.read_text().replace('"fused"', '# "fused"'))
    here.shows(page, "run", at=1)
    here.shows(page, 'baseline accept last --who "A. Reviewer"')
    here.shows(page, "gate last")
    return here


@pytest.mark.slow
@pytest.mark.smoke
def test_the_first_page_shows_a_failure_as_a_run_does(pages):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    failure = page.partition("## Reading a failure")[2].split("```")[1]
    assert unseen(failure.partition("\n")[2], pages.failed) == []


@pytest.mark.slow
@pytest.mark.smoke
def test_the_gate_says_of_new_weights_what_the_page_shows(pages, tmp_path):
    shutil.copytree(pages.project.path, tmp_path / "mine")
    here = Pages(tmp_path / "mine")
    (weights,) = here.project.path.glob("checkpoint/vae/*.safetensors")
    moved = {
        name: value * 1.01 if value.ndim > 1 else value
        for name, value in load_file(weights).items()
    }
    save_file(moved, weights, metadata={"format": "pt"})
    here.type("run")
    page = (ROOT / "docs/retrained.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert unseen(shown, here.type("gate last")) == []


@pytest.mark.slow
def test_a_bundle_and_its_traces_are_as_the_page_shows(pages):
    page, folder = "docs/targets.md", pages.project.path
    pages.shows(page, "bundle vae_decoder/mnn/fp32 --layers stats")
    pages.type("bundle vae_decoder/onnxruntime/fp32 --layers stats")
    for runtime in ("mnn", "onnxruntime"):
        bundle = folder / f"bundle-vae_decoder-{runtime}-fp32"
        out = str(folder / f"{runtime}.npz")
        run = (PARITY[0], "run.py", "--name", "box", "--out", out)
        Project(bundle).run(*run).check(0)
    pages.shows(page, "judge mnn.npz onnxruntime.npz")


@pytest.mark.slow
def test_a_card_is_written_and_checked_as_the_page_shows(pages):
    page, of_digits = "docs/release.md", ("--suite", str(DIGITS))
    pages.type(f"run text_encoder/onnxruntime {' '.join(of_digits)}")
    pages.shows(page, "card last", *of_digits)
    for variant in ("fp32", "fp16"):
        case = f"text_encoder/onnxruntime/{variant}"
        pages.type(f"bundle {case} {' '.join(of_digits)} --out given/{variant}")
    command = "verify card FOLDER text_encoder/onnx"
    printed = pages.type(
        command.replace("FOLDER", "given").replace("onnx", "onnxruntime/fp")
    )
    assert unseen(screens(page)[command][0], printed) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("README.md", "explain vae_decoder/mnn/fp32 --set floors=20"),
        ("docs/fp16.md", "ranges vae_decoder"),
        ("docs/fp16.md", "explain vae_decoder/onnxruntime/fp16 --set sqnr_db=70"),
    ],
)
def test_what_a_page_shows_of_digits_is_printed(pages, page, command):
    pages.shows(page, command, "--suite", str(DIGITS))


@pytest.mark.slow
def test_the_page_on_quantized_variants_shows_a_run(pages, tmp_path):
    shutil.copytree(pages.project.path, tmp_path / "mine")
    suite = tmp_path / "mine" / "parity.toml"
    suite.write_text(re.sub(r'# ("int8-\w+")', r"\1", suite.read_text()))
    command = "run vae_decoder/onnxruntime vae_decoder/mnn"
    Pages(tmp_path / "mine").shows("docs/quantized.md", command)


def test_a_line_that_is_not_printed_would_be_seen():
    printed = " ✓ a/mnn/fp32   layers use 9% of tolerance\n 5 of 6 cases agree\n"
    assert unseen(" ✓ a/mnn/fp32 layers use 8% of …\n 4 of 6 cases", printed) == []
    assert unseen(" ✗ a/mnn/fp32 layers\n", printed) == ["✗ a/mnn/fp# layers"]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in TRIED])
def test_every_screen_of_a_page_is_typed_here_or_says_why_not(page):
    name = page.relative_to(ROOT).as_posix()
    here = Path(__file__).read_text(encoding="utf-8")
    untried = UNTRIED.get(name, {}).keys()
    assert untried <= screens(name).keys()
    assert [one for one in screens(name).keys() - untried if one not in here] == []
