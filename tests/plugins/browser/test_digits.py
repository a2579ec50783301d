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


def run(suite, into, components):
    """Run components of a suite in both; return the report, and what was printed."""
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
    return load_report(into / "reports" / "runs", "last"), ended.text


@pytest.fixture(scope="module")
def reports(package, tmp_path_factory):  # noqa: ARG001  # it fills a folder
    """Return a function that runs a suite once."""
    made = {}

    def report(suite, components):
        if suite not in made:
            into = tmp_path_factory.mktemp(suite.name) / "suite"
            made[suite] = run(suite, into, components)
        return made[suite]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(tmp_path_factory.mktemp("store")))
        yield report


EPSILON = "down_blocks.0.attentions.0.norm  (group_norm)"
FOUND = {
    ("vae_encoder", "wasm"): "encoder.down_blocks.0.resnets.0.norm1  (group_norm)",
    # Each InstanceNormalization of a session gets the epsilon of one of them.
    ("controlnet", "webgpu"): EPSILON,
    ("unet", "webgpu"): EPSILON,
    ("controlled_unet", "webgpu"): EPSILON,
}
"""Faults of onnxruntime-web 1.30.0: where each first shows, and in which operator."""


def check(ran, case, place=""):
    """Require that each value of a case was compared, and where the first is wrong.

    `place` is empty where all values agree.
    """
    report, text = ran
    one = report.cases[case]
    assert one.record.failure is None, one.record.failure
    assert {LAYERS, OUTPUTS} <= {*one.rows}
    assert one.record.coverage["aligned"] == one.record.coverage["computing"]
    outcomes = {end.outcome for end in one.ends.values()}
    assert outcomes == ({"exceeds"} if place else {"within"}), one.ends
    if place:
        _, _, said = text.partition(f"✗ {case}\n")
        assert said.strip().startswith(f"first diverges at {place}"), said[:400]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("component", COMPONENTS)
def test_every_value_of_digits_is_compared_in_a_browser(reports, component, device):
    ran = reports(DIGITS, COMPONENTS)
    place = FOUND.get((component, device), "")
    check(ran, f"{component}/onnxruntime/fp32@browser-{device}", place)


def test_the_wrong_epsilon_of_the_unet_is_named(reports):
    _, text = reports(DIGITS, COMPONENTS)
    assert "epsilon is 1e-05 instead of 1e-06" in text


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("suite", TEXT)
def test_every_value_of_a_text_network_agrees_in_a_browser(reports, suite, device):
    ran = reports(FIXTURES / "text_tasks" / suite, [TEXT[suite]])
    check(ran, f"{TEXT[suite]}/onnxruntime/fp32@browser-{device}")
