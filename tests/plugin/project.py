"""A project of one tiny network with a warm store: pytest as a process, and `parity`.

Nothing is mocked: the suite is quick because the network is small. Where a test needs a
failure it tightens a tolerance; where it needs a missing runtime, it hides the runtime.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree as ET

import pytest

from harness.commands.cli import main
from harness.core.environment import environment
from harness.engine.keys import checkpoint_digest

CONFIG = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [8],
    "down_block_types": ["DownEncoderBlock2D"],
    "up_block_types": ["UpDecoderBlock2D"],
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 1,
    "mid_block_add_attention": False,
    "norm_num_groups": 4,
    "sample_size": 8,
    "scaling_factor": 0.18215,
}
SUITE = """\
components = ["vae_decoder"]

[source]
checkpoint = "checkpoint"
seed = 0

[export]
dynamic_axes = []

[[shapes]]
batch = 1
height = 8
width = 8

[inputs]
profiles = ["realistic"]
realistic = 1

[backend.onnxruntime]
variants = ["fp32"]

[backend.mnn]
variants = ["fp32", "int8-weights"]

[limits]
coverage = 0.5
timeout_s = 120
"""
TOLERANCES = """\
[onnxruntime.fp32]
outputs = "standard"
layers = "standard"

[mnn.fp32]
outputs = "standard"
layers = "standard"

[mnn.int8-weights]
outputs = "quantized"
layers = "quantized"
"""
TEST_FILE = '''\
"""Parity of the deployed models with PyTorch: `pytest -m parity`."""

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

SUITE = load_suite(Path(__file__).parent / "parity.toml")


@pytest.mark.parity
@pytest.mark.parametrize("check", SUITE.checks())
def test_parity(check, parity):
    parity.require(check)
'''
CASES = (
    "vae_decoder/onnxruntime/fp32",
    "vae_decoder/mnn/fp32",
    "vae_decoder/mnn/int8-weights",
)
# Without other plugins it starts in half the time.
LEFT_OUT = [
    f"-pno:{name}"
    for name in ("cacheprovider", "hypothesispytest", "benchmark", "anyio")
]
PYTEST = (sys.executable, "-m", "pytest", *LEFT_OUT)
PARITY = (sys.executable, "-m", "harness")
MAKING = (
    *("torch", "diffusers", "transformers", "onnx", "onnx_ir", "onnxscript"),
    *("cv2", "skimage", "tomlkit", "fsspec", "pytest", "hypothesis"),
    *("huggingface_hub", "flatbuffers", "google"),
)
"""What a base install does not have."""

HIDING = """
import sys
for name in {modules!r}:
    sys.modules[name] = None
from harness.commands.cli import main
sys.exit(main({arguments!r}))
"""
LIMIT_S = 240


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    text: str

    def has(self, words):
        """Whether it said so, wherever lines were broken."""
        return " ".join(words.split()) in " ".join(self.text.split())

    def check(self, code, *words):
        """Check the exit code and what was said; with code 2 comes no traceback."""
        assert self.code == code, self.text
        missing = [word for word in words if not self.has(word)]
        assert not missing, f"{missing} not in {self.text}"
        if code == 2:
            assert "Traceback" not in self.text
        return self

    @property
    def parity(self):
        """The lines of pytest's parity section."""
        lines = self.text.splitlines()
        starts = [n for n, line in enumerate(lines) if line.strip("= ") == "parity"]
        assert starts, self.text
        rest = lines[starts[0] + 1 :]
        ends = [n for n, line in enumerate(rest) if line.startswith("==")]
        return rest[: ends[0]]


def parity_without(project, modules, *arguments):
    """Run the command as if packages were not installed."""
    text = HIDING.format(modules=modules, arguments=list(arguments))
    return project.run(sys.executable, "-c", text)


@contextmanager
def as_a_command(folder, *words):
    """Have what runs here find what a new process would: a folder, words, no cache.

    Afterwards nothing of the folder is imported here: another project may have a
    recipe of the same name.
    """
    # A new process would read the files again, and ask for the commit of its folder.
    checkpoint_digest.cache_clear()
    environment.cache_clear()
    text = io.StringIO()
    with (
        chdir(folder),
        redirect_stdout(text),
        redirect_stderr(text),
        patch.object(sys, "argv", [*words]),
        patch.object(sys, "path", [*sys.path]),
        patch.dict(os.environ, own_environment(), clear=True),
    ):
        before = {*sys.modules}
        yield text
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def own_environment():
    """A user's pytest is no worker, though the one that runs this test may be."""
    return {name: value for name, value in os.environ.items() if "XDIST" not in name}


def called(folder, *args):
    """Run the `parity` command in a folder; an error that it does not expect raises."""
    with as_a_command(folder, "parity", *args) as text:
        code = main([*args])
    return Ended(code=code, text=text.getvalue())


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.*")}


@contextmanager
def unchanged(folder):
    """Check that a command writes no file of a suite."""
    before = files_in(folder)
    yield
    assert files_in(folder) == before


def rewrite(report, change):
    """Change what a run has recorded."""
    told = json.loads(report.read_text())
    change(told)
    report.write_text(json.dumps(told))


@contextmanager
def begun(command, folder, stdout=subprocess.PIPE):
    """Start a command in a folder, and end it whatever happens."""
    started = subprocess.Popen(
        command,
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def run_repro(folder):
    """Run the script that `parity repro` wrote, which needs nothing of the harness."""
    return subprocess.run(
        [sys.executable, "repro.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@dataclass(frozen=True)
class Project:
    """A folder with a suite, and what is run in it."""

    path: Path
    limit_s: float = LIMIT_S

    def branch(self, folder):
        """Copy it without its runs, so that something can be changed."""
        runs = shutil.ignore_patterns("runs")
        return Project(shutil.copytree(self.path, folder, ignore=runs))

    def change(self, name, old, new):
        file = self.path / name
        text = file.read_text()
        assert old in text, text
        file.write_text(text.replace(old, new))

    def add(self, name, text):
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def only_onnxruntime(self):
        """Leave one runtime, for what does not depend on which."""
        suite, tolerances = self.path / "parity.toml", self.path / "tolerances.toml"
        left, found = re.subn(r"\[backend\.mnn\]\n(.+\n)*", "", suite.read_text())
        assert found == 1
        suite.write_text(left)
        tolerances.write_text(tolerances.read_text().partition("[mnn.")[0])

    def tighten(self, table="[mnn.fp32]"):
        """Allow no difference where one is certain."""
        head, _, rest = (self.path / "tolerances.toml").read_text().partition(table)
        rest = rest.replace('"standard"', '"exact"', 2)
        (self.path / "tolerances.toml").write_text(head + table + rest)

    def collect(self, *args):
        """Collect the tests in this process, or refuse the options."""
        return self.pytest("--co", "-q", *args)

    def pytest(self, *args):
        """Run pytest in this process, because a new one takes seconds to start."""
        ours = ("--import-mode=importlib", "-pno:xdist", *LEFT_OUT)
        with as_a_command(self.path, "pytest", *args) as text:
            code = pytest.main([*ours, "-m", "parity", *args])
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", "")).startswith(f"{self.path}{os.sep}"):
                del sys.modules[name]  # the next project has one of its own
        return Ended(code=code, text=text.getvalue())

    def start_pytest(self, *args):
        """Run pytest as a user does, in a process of its own."""
        return self.run(*PYTEST, "-m", "parity", *args)

    def parity(self, *args):
        """Run the command in this process, because a new one takes seconds to start."""
        return called(self.path, *args)

    def accept(self, *words):
        return self.parity("baseline", "accept", "--who", "A. Reviewer", *words)

    def gated(self, code=0):
        """The gate's page for one more run, whose own exit code is `code`."""
        self.parity("run").check(code)
        return self.parity("gate")

    def run(self, *command):
        done = subprocess.run(
            command,
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=self.limit_s,
            check=False,
            env=own_environment(),
        )
        return Ended(code=done.returncode, text=done.stdout)

    @property
    def reports(self):
        return sorted((self.path / "reports" / "runs").glob("*/report.json"))

    @property
    def report(self):
        (path,) = self.reports
        return json.loads(path.read_text())

    @property
    def outcomes(self):
        """How each check of the one run ended."""
        return {check["id"]: check["outcome"] for check in self.report["verdicts"]}

    def case(self, name):
        """The record of a case in the one run."""
        (found,) = (one for one in self.report["cases"] if one["case"] == name)
        return found

    @property
    def junit(self):
        """What the JUnit file of a run tells of each check."""
        tests = ET.parse(self.path / "junit.xml").iter("testcase")  # noqa: S314  # our own
        told = [
            {p.get("name"): p.get("value") for p in t.iter("property")} for t in tests
        ]
        return {properties["parity.check"]: properties for properties in told}


def write_project(folder):
    vae = folder / "checkpoint" / "vae"
    vae.mkdir(parents=True)
    (vae / "config.json").write_text(json.dumps(CONFIG))
    (vae.parent / "model_index.json").write_text("{}")
    (folder / "parity.toml").write_text(SUITE)
    (folder / "tolerances.toml").write_text(TOLERANCES)
    (folder / "test_parity.py").write_text(TEST_FILE)
    return Project(folder)
