"""`parity repro` of a case in a browser: a fault of WebGPU that is really there.

onnxruntime-web 1.30.0 fuses a convolution with two activations, and drops one.
"""

import json
import shutil
import subprocess
import sys

import pytest

from harness.plugins.browser.chromium import browser_at
from tests.places import FIXTURES
from tests.plugin.project import Project
from tests.plugins.browser.conftest import RECIPE, SUITE, TOLERANCES

pytestmark = pytest.mark.browser
OWN = "dropped_tanh"
CASE = "net/onnxruntime/fp32@browser-webgpu"
FINDINGS = sorted((FIXTURES / "browser" / "findings").iterdir())


@pytest.fixture(scope="module")
def folder(package, tmp_path_factory):  # noqa: ARG001  # it fills a folder
    """The folder that `parity repro` writes."""
    suite = tmp_path_factory.mktemp("repro")
    right, wrong = "torch.erf(self.a(x))", "torch.tanh(torch.relu(self.a(x)))"
    assert right in RECIPE
    # A process imports a module once, by its name.
    (suite / f"{OWN}.py").write_text(RECIPE.replace(right, wrong))
    (suite / "config.json").write_text("{}")
    (suite / "tolerances.toml").write_text(TOLERANCES)
    (suite / "parity.toml").write_text(SUITE.replace("two_convolutions", OWN))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(suite)
        patch.setenv("PARITY_STORE", str(tmp_path_factory.mktemp("store")))
        ended = Project(suite).parity("repro", CASE, "--out", "made")
    ended.check(0, "next  cd made && npm install && python repro.py")
    return suite / "made"


def said(folder, package):
    done = subprocess.run(
        [sys.executable, "-I", "repro.py", browser_at(""), str(package.dist.parent)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_script_shows_the_fault_without_the_harness(folder, package):
    code, text = said(folder, package)
    assert (code, "times the noise of float32" in text) == (1, True), text


def test_in_webassembly_the_two_agree(folder, package, tmp_path):
    made = shutil.copytree(folder, tmp_path / "made")
    told = json.loads((made / "repro.json").read_text())
    told |= {"device": "wasm", "provider": ["CPUExecutionProvider", {}]}
    (made / "repro.json").write_text(json.dumps(told))
    code, text = said(made, package)
    assert (code, "rms" in text) == (0, True), text


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda path: path.name)
def test_a_folder_of_a_finding_shows_it(finding, package):
    code, text = said(finding, package)
    assert (code, "times the noise of float32" in text) == (1, True), text
