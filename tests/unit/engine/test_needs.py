"""`harness.engine.needs`: a pipeline's memory is forecast before it runs."""

from dataclasses import replace

import pytest

from harness.commands.run import print_forecast
from harness.core.memory import GIB
from harness.core.outcome import Outcome
from harness.engine.engine import Engine
from harness.engine.needs import TaskStep, takes
from harness.engine.store import Store
from harness.plugins.pipelines.needs import drawing_need, pipeline_need
from harness.suite.forecast import stored_weights
from harness.suite.schema import Limits
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES

SD15_BYTES = {
    "text_encoder": 123_060_480 * 4,
    "controlnet": 361_279_120 * 4,
    "controlled_unet": 859_520_964 * 4,
    "unet": 859_520_964 * 4,
    "vae_decoder": 49_490_199 * 4,
}
UNET_GIB = SD15_BYTES["unet"] / GIB


@pytest.fixture(scope="module")
def sd15():
    return load_suite(FIXTURES / "sd15")


@pytest.fixture(scope="module")
def digits():
    return load_suite(DIGITS)


def pipeline_case(suite, name):
    (found,) = (one for one in suite.pipeline_cases if one.id == name)
    return found


def weigh(component):
    return SD15_BYTES[component.recipe]


def run_need(one, count=weigh):
    need = pipeline_need(one, count)
    assert need is not None
    return need


def drawn_need(pipeline):
    need = drawing_need(pipeline, weigh)
    assert need is not None
    return need


@pytest.mark.parametrize(
    ("backend", "took_gib"), [("mnn", 17.6), ("onnxruntime", 13.1)]
)
def test_a_full_controlnet_pipeline_takes_what_was_measured(sd15, backend, took_gib):
    need = run_need(pipeline_case(sd15, f"canny/{backend}/fp32"))
    assert took_gib <= need.most_bytes / GIB <= 1.2 * took_gib


def test_only_the_largest_network_must_fit_for_the_others_are_let_go(sd15):
    drawing = drawn_need(pipeline_case(sd15, "canny/mnn/fp32").pipeline)
    run = run_need(pipeline_case(sd15, "canny/mnn/fp32"))
    for need in (drawing, run):
        assert 2.6 * UNET_GIB < need.size_bytes / GIB < 4 * UNET_GIB
        assert need.size_bytes < 0.75 * need.most_bytes


def test_without_attribution_pytorch_does_not_stand_beside_every_file(sd15):
    whole = pipeline_case(sd15, "canny/mnn/fp32")
    pipeline = replace(whole.pipeline, attribution=False)
    alone = replace(whole, pipeline=pipeline)
    saved = run_need(whole).most_bytes - run_need(alone).most_bytes
    assert saved / GIB > UNET_GIB


def test_pairs_need_pytorch_beside_every_file_and_its_own_bfloat16(sd15):
    whole = pipeline_case(sd15, "text2img/mnn/fp32")
    plain = replace(whole.pipeline, attribution=False)
    pairs = replace(plain, seeds=20)
    none, stated, own = (
        run_need(replace(whole, pipeline=one)).most_bytes / GIB
        for one in (plain, pairs, replace(pairs, yardstick="bfloat16"))
    )

    assert stated - none > UNET_GIB
    assert own - stated > UNET_GIB / 2


def test_a_cluster_is_told_the_memory_of_a_pipeline(digits, sd15):
    one = pipeline_case(digits, "text2img-euler/mnn/fp32")
    need = run_need(one, lambda component: stored_weights(component) or 0)
    assert takes([one], TaskStep.RUN).memory_bytes >= need.size_bytes
    # Nothing is known of a checkpoint without weights.
    assert (
        takes([pipeline_case(sd15, "text2img/mnn/fp32")], TaskStep.ALL).memory_bytes
        == 0
    )


def test_nothing_is_forecast_of_a_network_whose_weights_are_not_known(sd15):
    assert pipeline_need(pipeline_case(sd15, "canny/mnn/fp32"), lambda _: 0) is None


def test_a_pipeline_that_cannot_fit_is_refused_before_it_draws(digits, tmp_path):
    store = Store(root=tmp_path)
    with Engine(store, Limits(memory_gib=0.5)) as engine:
        record = engine.run(pipeline_case(digits, "text2img-euler/mnn/fp32"))

    assert record.failure is not None
    assert record.failure.outcome is Outcome.MEMORY
    said = record.failure.message
    assert said.startswith("drawing text2img-euler in PyTorch is forecast to need 0.")
    assert "0.5 GiB are allowed" in said
    assert list(tmp_path.glob("v1/drawing-inputs/*")) == []


def test_a_pipelines_memory_is_told_ahead(sd15, tmp_path, capsys):
    chosen = [pipeline_case(sd15, "canny/mnn/fp32")]
    lines = []
    for gib in (24.0, 4.0):
        limited = replace(sd15, limits=Limits(memory_gib=gib))
        print_forecast(limited, chosen, str(tmp_path))
        lines.append(capsys.readouterr().out.splitlines()[-1])
    fits, refused = lines

    name, size, *_ = fits.split()
    assert name == chosen[0].id
    assert 7 < float(size) < 11
    assert fits.endswith("up to 19.9 where there is room")
    assert refused.endswith("; does not fit")
