"""Planted faults of whole pipelines: each is caught, and blamed on whom it came from.

The pipelines are digits', the files are real, and so are the tolerances.
"""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from harness.core.case import Source
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.settings import Settings
from harness.engine.engine import record_of
from harness.plugins.pictures.words import attribution_of, picture_words
from harness.plugins.pipelines.case import App, Sampling
from harness.plugins.pipelines.drawing.measure import measure
from harness.suite.judge import Judge

pytestmark = pytest.mark.slow

TEXT2IMG = "text2img/onnxruntime/fp32"
CANNY = "canny/onnxruntime/fp32"


class Tampered:
    """A network between a role and its own, that changes questions or answers."""

    def __init__(self, network, change):
        self.network = network
        self.change = change
        self.calls = 0

    def __call__(self, feeds):
        self.calls += 1
        return self.change(self.network, feeds, self.calls)


def tampered(staged, role, change):
    """Return a role's network in a staged case, with a change of it."""
    return {role: Tampered(staged.candidates[role], change)}


@pytest.fixture
def judged(digits):
    """Measure a staged case with other networks or another app, and judge it."""
    judge = Judge.of(digits, Settings())

    def of(staged, app=None, **networks):
        case = staged.case
        pipeline = replace(staged.pipeline, app=app or App())
        measured = measure(
            case=case.id,
            pipeline=pipeline,
            inputs=staged.inputs,
            reference=staged.reference,
            candidates={**staged.candidates, **networks},
            torch_networks=staged.torch,
        )
        record = record_of(case, rows=measured.rows, pipeline=measured.about)
        return record, judge.check(record, "latents"), judge.check(record, "image")

    return of


def test_an_untampered_pipeline_is_within(staged, judged):
    record, latents, image = judged(staged(TEXT2IMG))

    assert (latents.outcome, image.outcome) == (Outcome.WITHIN, Outcome.WITHIN)
    assert "from" not in picture_words(record)


def test_another_checkpoint_of_the_unet_is_blamed_on_the_unet(
    staged, judged, network_of, tmp_path
):
    there = staged(TEXT2IMG)
    case = dict(there.case.roles)["unet"]
    folder = tmp_path / "other"
    shutil.copytree(case.component.source.path, folder)
    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights = load_file(file)
    rng = np.random.default_rng(0)
    for name, value in weights.items():
        noise = rng.standard_normal(value.shape, dtype=np.float32)
        weights[name] = value * (1 + np.float32(0.01) * noise)
    save_file(weights, file)
    component = replace(case.component, source=Source(path=folder))

    record, latents, image = judged(
        there, unet=network_of(replace(case, component=component))
    )

    assert (latents.outcome, image.outcome) == (Outcome.EXCEEDS, Outcome.EXCEEDS)
    assert latents.first.row.probe == "teacher-forced.00"
    assert attribution_of(record).culprit == "unet"
    assert "from unet" in image.picture


def test_another_text_encoder_is_blamed_on_the_text_encoder(staged, judged):
    there = staged(TEXT2IMG)

    def shift(network, feeds, _):
        made = network(feeds)
        return {name: value * 1.01 for name, value in made.items()}

    record, latents, _ = judged(there, **tampered(there, "text_encoder", shift))

    assert latents.first.row.probe == "embeddings"
    assert attribution_of(record).culprit == "text_encoder"


def test_a_scheduler_with_another_offset_is_found_before_networks_run(staged, judged):
    there = staged(TEXT2IMG)
    asked = []

    def note(network, feeds, call):
        asked.append(call)
        return network(feeds)

    watched = {role: Tampered(net, note) for role, net in there.candidates.items()}
    app = App(sampling=Sampling(options=(("steps_offset", 0),)))

    with pytest.raises(StageError, match="steps_offset is 0, expected 1") as refused:
        judged(there, app=app, **watched)

    assert refused.value.outcome is Outcome.SCHEDULE
    assert "timesteps [900, 800, 700, 600, …], expected [901," in str(refused.value)
    assert asked == []


def test_another_scheduler_is_found_by_its_sigmas_or_timesteps(staged, judged):
    app = App(sampling=Sampling(scheduler="pndm"))

    with pytest.raises(StageError, match="timesteps"):
        judged(staged(TEXT2IMG), app=app)


def test_the_scale_of_another_vae_is_blamed_on_the_decoder(staged, judged):
    there = staged(TEXT2IMG)
    factor = 0.63462 * 0.13025 / 0.18215  # SDXL's in the place of Stable Diffusion 1's

    record, latents, image = judged(there, app=App(scaling_factor=factor))

    assert latents.outcome is Outcome.WITHIN
    assert image.outcome is Outcome.EXCEEDS
    found = attribution_of(record)
    assert found.culprit == "vae_decoder"
    assert found.parts["vae_decoder"].share > 0.99
    said = (
        f"the app's scaling_factor is {factor:.6g}, the VAE's config.json has 0.63462"
    )
    assert image.picture.endswith(f" · {said}")


def test_an_apps_guidance_is_named_and_no_seat_is_blamed_for_it(staged, judged):
    record, latents, image = judged(staged(TEXT2IMG), app=App(guidance_scale=3.5))

    assert latents.outcome is Outcome.EXCEEDS
    said = "the app's guidance_scale is 3.5, [pipeline.text2img] has 3"
    assert image.picture.endswith(f" · {said}")
    assert attribution_of(record).rms < 0.01, "what the roles bring is rounding"


def test_guidance_on_the_wrong_half_of_the_batch_is_recognised(staged, judged):
    there = staged(TEXT2IMG)

    def exchange(network, feeds, _):
        without, with_prompt = network(feeds)["out_sample"].chunk(2)
        return {"out_sample": torch.cat([with_prompt, without])}

    record, latents, _ = judged(there, **tampered(there, "unet", exchange))

    assert latents.first.row.probe == "teacher-forced.00"
    assert (
        record.pipeline["signature"] == "the halves of the guidance batch are exchanged"
    )
    assert attribution_of(record).culprit == "unet"


def test_residuals_that_the_first_use_consumes_show_at_the_second_step(staged, judged):
    there = staged(CANNY)

    first = float(there.reference.timesteps[0])

    def consume(network, feeds, _):
        if feeds["timestep"].item() != first:
            feeds = {
                name: torch.zeros_like(value) if "res_sample" in name else value
                for name, value in feeds.items()
            }
        return network(feeds)

    record, latents, _ = judged(there, **tampered(there, "controlled_unet", consume))

    assert latents.first.row.probe == "teacher-forced.01"
    assert attribution_of(record).culprit == "controlled_unet"


def test_a_stale_buffer_shows_at_the_second_step(staged, judged):
    there = staged(TEXT2IMG)
    kept = {}

    def first_again(network, feeds, call):
        return kept["made"] if call > 1 else kept.setdefault("made", network(feeds))

    _, latents, _ = judged(there, **tampered(there, "unet", first_again))

    assert latents.first.row.probe == "teacher-forced.01"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        pytest.param(float("nan"), Outcome.NONFINITE, id="nan"),
        pytest.param(-1.0, Outcome.BLACK, id="black"),
        pytest.param(0.2, Outcome.CONSTANT, id="constant"),
    ],
)
def test_a_picture_without_content_has_its_own_outcome(staged, judged, value, outcome):
    there = staged(TEXT2IMG)

    def blank(network, feeds, _):
        made = network(feeds)
        return {name: torch.full_like(each, value) for name, each in made.items()}

    record, latents, image = judged(there, **tampered(there, "vae_decoder", blank))

    assert latents.outcome is Outcome.WITHIN
    assert image.outcome is outcome
    assert attribution_of(record).culprit == "vae_decoder"


def test_one_pixel_of_nan_is_no_picture(staged, judged):
    there = staged(TEXT2IMG)

    def spot(network, feeds, _):
        made = network(feeds)["sample"]
        made[0, 0, 5, 5] = float("nan")
        return {"sample": made}

    _, _, image = judged(there, **tampered(there, "vae_decoder", spot))

    assert image.outcome is Outcome.NONFINITE
