"""Inpainting: equal to diffusers' own pipeline to the bit, and the refused settings."""

import json
import shutil
from functools import partial
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion import pipeline_stable_diffusion_inpaint
from PIL import Image

from harness.core.case import Device, Source
from harness.core.errors import SuiteError
from harness.plugins.pipelines.case import INPAINT, KINDS, Pipeline, pipelines_of
from harness.plugins.pipelines.drawing.draw import (
    PipelineParts,
    assemble,
    draw,
    stored_noise,
)
from harness.plugins.pipelines.drawing.inputs import (
    draw_inputs,
    load_inputs,
    save_inputs,
)
from harness.plugins.pipelines.drawing.networks import Residents
from harness.plugins.pipelines.drawing.reference import torch_networks
from harness.recipes import describe
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES
from tests.unit.nets import Overheard

pytestmark = pytest.mark.usefixtures("one_thread")

TOLD = FIXTURES / "inpaint"
"""A checkpoint whose UNet is told mask and picture, nine channels in all."""

SIZE = {DIGITS: (64, 64), TOLD: (32, 48)}
RESIDENTS = Residents()


def pipeline(path=DIGITS, **about):
    source = Source(path=path, seed=None if path == DIGITS else 0)
    height, width = SIZE[path]
    given = {
        "image": DIGITS / "seven.png" if path == DIGITS else None,
        "strength": 1.0,
        **about,
    }
    return Pipeline(
        name="inpaint",
        kind=INPAINT,
        source=source,
        components=tuple(describe(role, role, source) for role in KINDS[INPAINT]),
        prompts=("a seven in red ink on white paper", "three"),
        height=height,
        width=width,
        steps=3,
        guidance_scale=3.0,
        **given,
    )


def drawn(plan, inputs, **about):
    """Pictures, and who drew them."""
    networks = {
        role: Overheard(network)
        for role, network in torch_networks(plan, RESIDENTS, Device()).items()
    }
    cast = PipelineParts(networks=networks, sampling=plan.sampling)
    return draw(assemble(plan, inputs, cast), plan, inputs, **about), networks


def begun(plan):
    return draw_inputs(plan)


def pictures(plan, image):
    return torch.from_numpy(np.stack([image] * len(plan.texts)))


@pytest.mark.parametrize("strength", [1.0, 0.7])
def test_it_is_diffusers_own_but_for_the_sample(monkeypatch, strength):
    """Diffusers draws from the encoder's distribution; the stand-in takes its mode."""
    plan = pipeline(strength=strength)
    inputs = begun(plan)
    ours, _ = drawn(plan, inputs)

    module = pipeline_stable_diffusion_inpaint
    mode = partial(module.retrieve_latents, sample_mode="argmax")
    monkeypatch.setattr(module, "retrieve_latents", mode)
    pipe = diffusers.StableDiffusionInpaintPipeline.from_pretrained(
        DIGITS, safety_checker=None, requires_safety_checker=False
    )
    pipe.set_progress_bar_config(disable=True)
    with stored_noise(inputs.noise, pipe), torch.no_grad():
        theirs = pipe(
            prompt=list(plan.texts),
            negative_prompt=[""] * len(plan.texts),
            image=pictures(plan, inputs.image),
            mask_image=pictures(plan, inputs.mask),
            strength=strength,
            height=plan.height,
            width=plan.width,
            num_inference_steps=plan.steps,
            guidance_scale=plan.guidance_scale,
            output_type="np",
            return_dict=False,
        )[0]

    np.testing.assert_array_equal(ours, theirs * np.float32(255))


def test_what_is_not_masked_keeps_its_latents():
    plan = pipeline()
    inputs = begun(plan)

    latents, networks = drawn(plan, inputs, decode=False)

    picture = networks["vae_encoder"].answered[0]["latent_sample"].numpy()
    factor = json.loads((DIGITS / "vae" / "config.json").read_text())["scaling_factor"]
    step = plan.height // latents.shape[2]
    kept = inputs.mask[0, ::step, ::step] == 0
    assert np.abs(latents - factor * picture)[:, :, kept].max() < 1e-6
    assert np.abs(latents - factor * picture)[:, :, ~kept].max() > 0.1


def test_a_unet_of_nine_channels_is_told_the_mask_and_the_rest_of_the_picture():
    plan = pipeline(TOLD)
    inputs = begun(plan)

    _, networks = drawn(plan, inputs)

    (encoded,) = networks["vae_encoder"].asked
    picture = 2 * pictures(plan, inputs.image) - 1
    assert torch.equal(encoded["sample"], picture * (1 - pictures(plan, inputs.mask)))
    for asked in networks["unet"].asked:
        _, mask, rest = asked["sample"].split([4, 1, 4], dim=1)
        assert torch.equal(mask[0, 0], torch.from_numpy(inputs.mask[0, ::2, ::2]))
        (answer,) = networks["vae_encoder"].answered
        assert torch.equal(rest, torch.cat([0.18215 * answer["latent_sample"]] * 2))


def test_a_picture_that_is_left_out_is_drawn_and_so_is_a_mask():
    inputs = begun(pipeline(TOLD))
    assert inputs.image.shape == (3, 32, 48)
    assert set(np.unique(inputs.mask)) == {0.0, 1.0}
    turned = inputs.mask[:, ::-1, ::-1]
    assert (inputs.mask != turned).any(), "no axis may pass for another"


def test_a_mask_is_what_is_white(tmp_path):
    grey = np.zeros((32, 48), np.uint8)
    grey[4:8, 10:30] = 128
    grey[20:, 40:] = 127
    path = tmp_path / "mask.png"
    Image.fromarray(grey).save(path)
    np.testing.assert_array_equal(begun(pipeline(TOLD, mask=path)).mask[0], grey == 128)


def test_inputs_come_back_from_their_files(tmp_path):
    inputs = begun(pipeline(TOLD))
    save_inputs(inputs, tmp_path)

    again = load_inputs(tmp_path, list(inputs.ids["text_encoder"]))

    assert list(again.ids) == list(inputs.ids)
    for role, ids in inputs.ids.items():
        assert list(again.ids[role]) == list(ids)
        for text in ids:
            np.testing.assert_array_equal(again.ids[role][text], ids[text])
    for name in ("noise", "image", "mask"):
        np.testing.assert_array_equal(getattr(again, name), getattr(inputs, name))


@pytest.mark.parametrize(
    ("size", "white", "said"),
    [
        ((48, 32), (0, 48), r"mask\.png is 48 x 32 px and the pipeline draws 64 x 64"),
        ((64, 64), (0, 0), r"mask\.png is white at none of the pixels"),
        ((64, 64), (1, 2), r"each 4th of each 4th row, so nothing would be drawn"),
    ],
)
def test_a_mask_that_cannot_be_used_is_refused(tmp_path, size, white, said):
    grey = np.zeros(size[::-1], np.uint8)
    grey[:, slice(*white)] = 255
    path = tmp_path / "mask.png"
    Image.fromarray(grey).save(path)
    with pytest.raises(SuiteError, match=said):
        begun(pipeline(mask=path))


SUITE = """\
components = ["unet"]
[source]
checkpoint = "checkpoint"
seed = 0
[export]
dynamic_axes = ["batch"]
[[shapes]]
batch = 1
height = 16
width = 16
[inputs]
profiles = ["realistic"]
realistic = 1
[backend.onnxruntime]
variants = ["fp32"]
"""
TABLE = """\
[pipeline.inpaint]
prompts = ["three"]
height = 32
width = 48
"""


@pytest.fixture
def load(tmp_path):
    def load(table, channels=9):
        shutil.copytree(TOLD, tmp_path / "checkpoint", dirs_exist_ok=True)
        path = tmp_path / "checkpoint" / "unet" / "config.json"
        config = {**json.loads(path.read_text()), "in_channels": channels}
        path.write_text(json.dumps(config))
        suite = tmp_path / "parity.toml"
        suite.write_text(SUITE + table, encoding="utf-8")
        return pipelines_of(load_suite(suite).pipeline_cases)[0].pipeline

    return load


def test_it_draws_from_noise_alone_unless_a_strength_is_given(load):
    assert load(TABLE).strength == 1.0
    assert load(TABLE + "strength = 0.5\n").strength == 0.5


def test_the_mask_is_found_beside_the_suite(load, tmp_path):
    shutil.copy(TOLD / "mask.png", tmp_path)
    assert load(TABLE + 'mask = "mask.png"\n').mask == Path(tmp_path / "mask.png")


@pytest.mark.parametrize(
    ("table", "channels", "said"),
    [
        (TABLE + 'mask = "no.png"\n', 9, "there is no picture .*no.png"),
        (TABLE + "strength = 0.001\n", 9, "strength 0.001 leaves none of 20 steps"),
        (TABLE, 5, "a UNet of 9 channels, or with one of 4 and blends; .* takes 5"),
        (
            TABLE.replace("inpaint", "text2img"),
            9,
            'gives the UNet 4 channels, and .*unet takes 9. It inpaints: kind = "inp',
        ),
        (TABLE.replace("inpaint", "text2img"), 8, "and .*unet takes 8.$"),
        (TABLE.replace("inpaint", "text2img") + 'mask = "mask.png"\n', 4, "mask"),
    ],
)
def test_what_cannot_be_inpainted_is_refused_in_a_sentence(load, table, channels, said):
    with pytest.raises(SuiteError, match=said):
        load(table, channels)
