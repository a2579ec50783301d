"""What the harness makes to be sent has no path of the machine that made it."""

import os
import subprocess
import sys

import pytest

from tests.plugin.project import LIMIT_S

pytestmark = pytest.mark.slow  # three runtimes, each in processes of its own

USER = "annleeson"
NET = """\
import torch

from harness.core.case import TensorSpec
from inside.part import Part


def signature(source, options):
    shape = ("batch", 8)
    return (TensorSpec(name="x", shape=shape, draw="normal"),), (
        TensorSpec(name="y", shape=shape),
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        return torch.tanh(self.part(x))


def build(component, attention=""):
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


def realistic(component, shapes, step, rng):
    (spec,) = component.inputs
    return {"x": rng.standard_normal(spec.bind(shapes)).astype("float32")}
"""
PART = """\
import torch


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) * 2
"""
SUITE = """\
components = ["net"]
source.checkpoint = "weights"
export.exporter = "{exporter}"
shapes = [{{ batch = 2 }}]
inputs = {{ profiles = ["realistic"], realistic = 1, more_sizes = false }}
backend.onnxruntime.variants = ["fp32"]
backend.mnn.variants = ["fp32"]
backend.openvino.variants = ["fp32"]
component.net.recipe = "net"
"""
TOLERANCES = "".join(
    f'[{name}.fp32]\noutputs = "standard"\nlayers = "standard"\n'
    for name in ("onnxruntime", "mnn", "openvino")
)


class Own:
    """A project in the home of somebody, and the commands that are run in it."""

    def __init__(self, folder, exporter, more=""):
        self.home = folder / "home" / USER
        self.path = self.home / "nets"
        (self.path / "inside").mkdir(parents=True)
        (self.path / "weights").mkdir()
        (self.path / "weights" / "config.json").write_text("{}")
        (self.path / "net.py").write_text(NET)
        (self.path / "inside" / "part.py").write_text(PART)
        suite = SUITE.format(exporter=exporter)
        (self.path / "parity.toml").write_text(suite + more)
        (self.path / "tolerances.toml").write_text(TOLERANCES)
        self.store = folder / "store"

    def parity(self, *words):
        told = {"HOME": str(self.home), "USER": USER, "LOGNAME": USER}
        done = subprocess.run(
            [sys.executable, "-m", "harness", *words, "--store", str(self.store)],
            cwd=self.path,
            env=os.environ | told,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def told_in(self, folder):
        """Return each file that names the home or its user, and what it names."""
        secrets = (USER, str(self.home), str(self.store.parent))
        return [
            (path.relative_to(folder).as_posix(), secret)
            for path in sorted(folder.rglob("*"))
            # What a recipe's `build` imports is noted by its paths, and not shared.
            if path.is_file() and "imports" not in path.relative_to(folder).parts
            for secret in secrets
            if secret.encode() in path.read_bytes()
        ]


@pytest.fixture(scope="module", params=["dynamo", "torchscript"])
def own(request, tmp_path_factory):
    made = Own(tmp_path_factory.mktemp("own"), request.param)
    made.parity("run")
    return made


def test_no_file_of_the_store_names_the_home_or_its_user(own):
    assert own.told_in(own.store) == []


def test_no_file_of_a_bundle_does(own):
    into = own.path / "bundle"
    own.parity("bundle", "onnxruntime", "--out", str(into))
    assert own.told_in(into) == []


@pytest.mark.parametrize("runtime", ["onnxruntime", "mnn", "openvino"])
def test_no_file_for_a_bug_report_does(own, runtime):
    into = own.path / f"repro-{runtime}"
    case = f"net/{runtime}/fp32"
    own.parity("repro", case, "--probe", "part.linear", "--out", str(into))
    assert own.told_in(into) == []


@pytest.mark.parametrize("own", ["dynamo"], indirect=True)
def test_a_module_is_named_from_its_folder(own):
    (probes,) = own.store.glob("v*/onnx/*/*/probes.json")
    assert '"inside/part.py:10"' in probes.read_text()


def test_whoever_needs_the_paths_keeps_them(tmp_path):
    made = Own(tmp_path, "dynamo", "export.keep_paths = true\n")
    made.parity("run", "onnxruntime")
    (graph,) = made.store.glob("v*/onnx/*/*/model.onnx")
    assert str(made.path / "inside" / "part.py").encode() in graph.read_bytes()
