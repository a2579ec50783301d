"""Digits on an emulated arm64 processor: all components, and a picture.

It takes many minutes, because every value is computed by the emulator.
"""

import shutil
from pathlib import Path

import pytest
import tomlkit

from harness.commands.ranges import losses_of
from harness.core.record import ISOLATED, LAYERS
from harness.engine.engine import Engine
from harness.engine.finished_run import load_report
from harness.engine.run import open_store
from harness.measure.float16 import LEAST_DB
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.plugin.project import Project

pytestmark = pytest.mark.targets
LIMIT_S = 3600
PRECISIONS = ("", "-low")
TOLERANCES = """\
[mnn.fp32]
outputs = "standard"
layers = "standard"
latents = "standard"
image = "standard"
"""
PICTURE = {
    "prompts": ["a seven in red ink on white paper"],
    "height": 64,
    "width": 64,
    "steps": 4,
    "guidance_scale": 3.0,
    "attribution": False,
    "variants": ["fp32@phone", "fp32@phone-low"],
}


@pytest.fixture(scope="module")
def report(machines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    suite = folder / "suite"
    others = shutil.ignore_patterns("worst_inputs.toml", "known_gaps.toml")
    shutil.copytree(DIGITS, suite, ignore=others)
    written = tomlkit.loads((suite / "parity.toml").read_text())
    del written["variant"]
    written["target"] = {"phone": {"command": [machines[0]]}}
    written["backend"] = {"mnn": {"targets": ["phone"], "precision": ["high", "low"]}}
    written["pipeline"] = {"text2img": PICTURE}
    written["limits"]["timeout_s"] = LIMIT_S
    (suite / "parity.toml").write_text(tomlkit.dumps(written))
    (suite / "tolerances.toml").write_text(TOLERANCES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(folder / "store"))
        ended = Project(suite, limit_s=LIMIT_S).parity("run", "--isolate")
        assert "Traceback" not in ended.text
        yield load_report(suite / "reports" / "runs", "last")


def record(report, component, precision):
    return report.cases[f"{component}/mnn/fp32@phone{precision}"].record


COMPONENTS = (
    "text_encoder",
    "vae_encoder",
    "vae_decoder",
    "controlnet",
    "unet",
    "controlled_unet",
)


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_phones_float32_is_near_that_of_pytorch(report, component):
    outputs = [r for r in record(report, component, "").rows if r.what == "outputs"]
    assert min(row.comparison.sqnr_db for row in outputs) > 90


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_phones_float16_rounds_layers_of_every_component(report, component):
    there = record(report, component, "-low")
    layers = [row for row in there.rows if row.what == LAYERS]
    assert any("11 bits" in row.looks for row in layers)
    assert there.coverage["aligned"] == there.coverage["computing"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_ranges_forecasts_is_lost_on_the_phone(report, component):
    there = record(report, component, "-low")
    (case,) = load_suite(Path(there.suite)).select([there.case])
    with Engine(open_store(""), load_suite(Path(there.suite)).limits) as engine:
        forecast = {loss.probe.name for loss in losses_of(engine, case)}
    lost = {
        row.probe
        for row in there.rows
        if row.what == ISOLATED and not row.comparison.sqnr_db >= LEAST_DB
    }

    assert forecast <= lost


def test_a_picture_is_drawn_with_the_phones_networks(report):
    high, low = (
        min(
            row.comparison.picture.psnr_db
            for row in record(report, "text2img", precision).rows
            if row.what == "image"
        )
        for precision in PRECISIONS
    )

    assert high > 60
    assert low < high
