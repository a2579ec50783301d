"""A suite of one small network in a real browser, and onnxruntime-web from npm."""

import os

import pytest

from harness.core.errors import StageError
from harness.plugins.browser.chromium import browser_at
from harness.plugins.browser.package import package_of
from harness.plugins.browser.targets import TESTED
from tests.plugin.project import Project
from tests.unit.browser import NO_BROWSER

RECIPE = """
from harness.core.case import TensorSpec
from harness.recipes.types import normal


def signature(source, options):
    specs = (normal("x", "batch", 4, 8, 8),)
    return specs, (TensorSpec(name="y", shape=("batch", 4, 8, 8)),)


def build(component, attention=""):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Conv2d(4, 8, 3, padding=1)
            self.b = torch.nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, x):
            return self.b(torch.erf(self.a(x)))

    torch.manual_seed(0)
    return Net().eval()


def realistic(component, shapes, step, rng):
    return {"x": rng.standard_normal(component.inputs[0].bind(shapes), dtype="float32")}
"""
SUITE = """
components = ["net"]
[source]
checkpoint = "."
[[shapes]]
batch = 2
[inputs]
profiles = ["realistic"]
realistic = 1
[component.net]
recipe = "two_convolutions"
[backend.onnxruntime]
variants = ["fp32"]
targets = ["here", "browser"]
[target.browser]
kind = "browser"
device = ["wasm", "webgpu"]
adapter = "swiftshader"
"""
# What npm says where there is no network. All else is a fault, of ours or of npm.
NO_ANSWER = ("no end within", "ENOTFOUND", "EAI_AGAIN", "ECONN", "ETIMEDOUT", "timeout")
TOLERANCES = '[onnxruntime.fp32]\noutputs = "standard"\nlayers = "standard"\n'


@pytest.fixture(scope="session")
def package():
    """onnxruntime-web, which npm brings once into this machine's own store."""
    if os.environ.get(NO_BROWSER):
        pytest.skip(f"{NO_BROWSER} is set: no page was opened, nothing is known of it")
    browser_at("")
    try:
        return package_of("", TESTED)
    except StageError as error:
        if any(word in str(error) for word in NO_ANSWER):
            pytest.skip(f"the registry of npm does not answer: {error}")
        pytest.fail(f"{error} {NO_BROWSER}=1 leaves these tests out.")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """A store for all tests, so that the network is exported once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def project(package, tmp_path_factory):
    """A project of two convolutions, whose target has the package in its folder."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "config.json").write_text("{}")
    (folder / "two_convolutions.py").write_text(RECIPE)
    (folder / "tolerances.toml").write_text(TOLERANCES)
    named = f'package = "{package.dist.parent}"\n'
    (folder / "parity.toml").write_text(SUITE + named)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield Project(folder)
