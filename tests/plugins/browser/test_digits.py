"""All of digits, and five text networks, in a browser: it takes many minutes."""

import shutil

import pytest
import tomlkit

from harness.core.record import LAYERS, OUTPUTS
from harness.engine.finished_run import load_report
from tests.places import DIGITS, FIXTURES
from tests.plugin.project import Project

pytestmark = pytest.mark.browser
LIMIT_S = 3600
DEVICES = ("wasm", "webgpu")
TOLERANCES = '[onnxruntime.fp32]\noutputs = "standard"\nlayers = "standard"\n'
COMPONENTS = (
    *("text_encoder", "vae_encoder", "vae_decoder"),
    *("controlnet", "unet", "controlled_unet"),
)
TEXT = {
    "bert": "default",
    "deberta": "default",
    "distilbert": "question-answering",
    "roberta": "text-classification",
    "xlm_roberta": "pooling",
}


def ran(suite, into, components):
    """Run components of a suite in WebAssembly and in WebGPU; return the report."""
    others = shutil.ignore_patterns("worst_inputs.toml", "known_gaps.toml", "reports")
    shutil.copytree(suite, into, ignore=others)
    written = tomlkit.loads((into / "parity.toml").read_text())
    for key in ("variant", "pipeline"):
        written.pop(key, None)
    written["components"] = [*components]
    for name in {*written.get("component", ())} - {*components}:
        del written["component"][name]
    written["inputs"]["profiles"] = ["realistic"]
    written["limits"] = {"timeout_s": LIMIT_S, "jobs": 1}
    written["backend"] = {"onnxruntime": {"targets": ["browser"]}}
    # WebGPU has no Cast of whole numbers; deberta makes three.
    there = {"device": [*DEVICES], "adapter": "swiftshader", "cpu_nodes": 0.02}
    written["target"] = {"browser": {"kind": "browser", **there}}
    (into / "parity.toml").write_text(tomlkit.dumps(written))
    (into / "tolerances.toml").write_text(TOLERANCES)
    ended = Project(into, limit_s=LIMIT_S).parity("run")
    assert ended.code in {0, 1}, ended.text
    return load_report(into / "reports" / "runs", "last")


@pytest.fixture(scope="module")
def reports(package, tmp_path_factory):  # noqa: ARG001  # it skips where npm is not
    """Return a function that runs a suite once."""
    made = {}

    def report(suite, components):
        if suite not in made:
            into = tmp_path_factory.mktemp(suite.name) / "suite"
            made[suite] = ran(suite, into, components)
        return made[suite]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(tmp_path_factory.mktemp("store")))
        yield report


FOUND = {
    ("vae_encoder", "wasm"): ("group_norm", "scaled by its own factor"),
    # Each InstanceNormalization of a session gets the epsilon of the first one.
    ("controlnet", "webgpu"): ("group_norm", ""),
    ("unet", "webgpu"): ("group_norm", "epsilon is 1e-05 instead of 1e-06"),
    ("controlled_unet", "webgpu"): ("group_norm", ""),
}
"""Faults of onnxruntime-web 1.30.0: the operator, and what its error looks like."""


def check(report, case, found=None):
    """Require that each value of a case was compared, and what differs.

    `found` is the operator that is blamed, and the look of its error; None where all
    values agree.
    """
    one = report.cases[case]
    assert one.record.failure is None, one.record.failure
    assert {LAYERS, OUTPUTS} <= {*one.rows}
    assert one.record.coverage["aligned"] == one.record.coverage["computing"]
    if found is None:
        assert {end.outcome for end in one.ends.values()} == {"within"}, one.ends
        return
    operator, looks = found
    assert one.ends[LAYERS].outcome == "exceeds"
    assert f"({operator})" in one.ends[LAYERS].reason
    assert any(looks in row.looks for row in one.rows[LAYERS])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("component", COMPONENTS)
def test_every_value_of_digits_is_compared_in_a_browser(reports, component, device):
    report = reports(DIGITS, COMPONENTS)
    found = FOUND.get((component, device))
    check(report, f"{component}/onnxruntime/fp32@browser-{device}", found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("suite", TEXT)
def test_every_value_of_a_text_network_agrees_in_a_browser(reports, suite, device):
    report = reports(FIXTURES / "text_tasks" / suite, [TEXT[suite]])
    check(report, f"{TEXT[suite]}/onnxruntime/fp32@browser-{device}")
