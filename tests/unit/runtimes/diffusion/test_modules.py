"""The modules that replace a pipeline's networks change no bit of their values."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion import pipeline_stable_diffusion_img2img
from transformers import CLIPTokenizer

from harness.core.case import Device, Source
from harness.plugins.pipelines.case import (
    KINDS,
    SCHEDULERS,
    Control,
    Pipeline,
    Sampling,
)
from harness.plugins.pipelines.drawing.draw import (
    PipelineParts,
    assemble,
    draw,
    stored_noise,
)
from harness.plugins.pipelines.drawing.inputs import draw_inputs
from harness.plugins.pipelines.drawing.modules import StoredTokens, UNetRole, VaeRole
from harness.plugins.pipelines.drawing.networks import Residents, TorchNetwork
from harness.plugins.pipelines.drawing.reference import torch_networks
from harness.recipes import describe
from tests.places import DIGITS
from tests.unit.nets import Overheard

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCE = Source(path=DIGITS)
FULL_SCALE = np.float32(255)
RESIDENTS = Residents()
"""Shared by all tests: each network is loaded once."""


def pipeline(kind="text2img", **about):
    texts = {"prompts": ("a seven in red ink on white paper", "three")}
    return Pipeline(
        name=kind,
        kind=kind,
        source=SOURCE,
        components=tuple(describe(role, role, SOURCE) for role in KINDS[kind]),
        height=64,
        width=64,
        steps=2,
        guidance_scale=3.0,
        image=None if kind == "text2img" else Path(DIGITS / "seven.png"),
        control=Control(resolution=64, low_threshold=50, high_threshold=150),
        **{**texts, **about},
    )


def cast(plan, **about):
    networks = {
        role: Overheard(network)
        for role, network in torch_networks(plan, RESIDENTS, Device()).items()
    }
    return PipelineParts(networks=networks, sampling=plan.sampling, **about)


def drawn(plan, inputs, **about):
    """Pictures, and who drew them."""
    players = cast(plan, **about)
    return draw(assemble(plan, inputs, players), plan, inputs), players.networks


def real(cls=diffusers.StableDiffusionPipeline, sampling="DDIMScheduler", **parts):
    """Diffusers' pipeline with diffusers' networks and transformers' tokenizer."""
    loaded = diffusers.StableDiffusionPipeline.from_pretrained(
        DIGITS, safety_checker=None, requires_safety_checker=False
    )
    parts = {**loaded.components, **parts}
    parts["scheduler"] = getattr(diffusers, sampling).from_pretrained(
        DIGITS / "scheduler"
    )
    made = cls(**parts, requires_safety_checker=False)
    made.set_progress_bar_config(disable=True)
    return made


@pytest.fixture(scope="module")
def controlnet():
    return diffusers.ControlNetModel.from_pretrained(DIGITS / "controlnet").eval()


def called(pipe, plan, **about):
    """Pictures of a real pipeline, as the stand-ins' are asked for."""
    with torch.no_grad():
        made = pipe(
            prompt=list(plan.texts),
            negative_prompt=[plan.negative_prompt] * len(plan.texts),
            num_inference_steps=plan.steps,
            guidance_scale=plan.guidance_scale,
            eta=plan.eta,
            output_type="np",
            return_dict=False,
            **about,
        )
    return made[0] * FULL_SCALE


def begun(inputs):
    return {"latents": torch.from_numpy(inputs.noise[0].copy())}


def hints(plan, inputs):
    return torch.from_numpy(np.stack([inputs.image] * len(plan.texts)))


@pytest.mark.parametrize(
    "about",
    [
        pytest.param({}, id="plain"),
        pytest.param({"negative_prompt": "blue ink", "samples": 2}, id="negative"),
        pytest.param({"guidance_scale": 1.0}, id="unguided"),
        pytest.param({"height": 96}, id="high"),
        pytest.param({"sampling": Sampling(scheduler="euler")}, id="other-scheduler"),
    ],
)
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # diffusers' tables
def test_text_to_image_is_diffusers_own_to_the_bit(about):
    plan = replace(pipeline(), **about)
    inputs = draw_inputs(plan)

    ours, _ = drawn(plan, inputs)
    size = {"height": plan.height, "width": plan.width}
    pipe = real(sampling=SCHEDULERS[plan.sampling.scheduler or "ddim"])
    theirs = called(pipe, plan, **size, **begun(inputs))

    assert ours.shape == (2 * plan.samples, plan.height, 64, 3)
    assert ours.dtype == np.float32
    assert ours.std() > 5
    np.testing.assert_array_equal(ours, theirs)


def test_noise_of_ddim_is_diffusers_own_to_the_bit():
    plan = pipeline(eta=0.7)
    inputs = draw_inputs(plan)

    ours, _ = drawn(plan, inputs)
    pipe = real()
    with stored_noise(inputs.noise[1:], pipe.scheduler):
        theirs = called(pipe, plan, height=64, width=64, **begun(inputs))
    silent, _ = drawn(replace(plan, eta=0.0), inputs)

    np.testing.assert_array_equal(ours, theirs)
    assert (ours != silent).any()


def test_image_to_image_is_diffusers_own_but_for_the_sample(monkeypatch):
    """Diffusers draws from the encoder's distribution; the stand-in takes its mode."""
    module = pipeline_stable_diffusion_img2img
    mode = partial(module.retrieve_latents, sample_mode="argmax")
    plan = pipeline("img2img", strength=1.0)
    inputs = draw_inputs(plan)

    ours, networks = drawn(plan, inputs)
    monkeypatch.setattr(module, "retrieve_latents", mode)
    pipe = real(diffusers.StableDiffusionImg2ImgPipeline)
    with stored_noise(inputs.noise, pipe):
        theirs = called(pipe, plan, image=hints(plan, inputs), strength=plan.strength)

    np.testing.assert_array_equal(ours, theirs)
    (asked,) = networks["vae_encoder"].asked
    assert torch.equal(asked["sample"], 2 * hints(plan, inputs) - 1)


@pytest.mark.parametrize("strength", [1.0, 0.6])
def test_a_controlled_picture_is_diffusers_own_to_the_bit(controlnet, strength):
    plan = pipeline("controlnet")
    plan = replace(plan, control=replace(plan.control, strength=strength))
    inputs = draw_inputs(plan)

    ours, _ = drawn(plan, inputs)
    pipe = real(diffusers.StableDiffusionControlNetPipeline, controlnet=controlnet)
    theirs = called(
        pipe,
        plan,
        image=hints(plan, inputs),
        controlnet_conditioning_scale=strength,
        **begun(inputs),
    )

    np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def guess():
    plan = pipeline("controlnet", prompts=("three",))
    control = replace(plan.control, strength=0.9, guess_mode=True)
    plan = replace(plan, control=control)
    _, networks = drawn(plan, draw_inputs(plan))
    return networks


def residuals_given(asked):
    kept = {"sample", "timestep", "encoder_hidden_states"}
    return [value for name, value in asked.items() if name not in kept]


def test_in_guess_mode_residuals_fall_off_towards_the_input(guess):
    for answered, asked in zip(
        guess["controlnet"].answered, guess["controlled_unet"].asked, strict=True
    ):
        given = residuals_given(asked)
        assert len(given) == len(answered) == 13
        for index, (made, used) in enumerate(
            zip(answered.values(), given, strict=True)
        ):
            scale = 0.9 * 0.825 ** (12 - index)
            assert made.abs().max() > 0
            torch.testing.assert_close(used[1:], made * scale, rtol=1e-6, atol=0)


def test_in_guess_mode_the_half_without_a_prompt_gets_no_residuals(guess):
    assert len(guess["controlnet"].asked) == 2
    for asked in guess["controlnet"].asked:
        assert asked["sample"].shape == (1, 4, 16, 16)
        assert asked["controlnet_cond"].shape == (1, 3, 64, 64)
    for asked in guess["controlled_unet"].asked:
        assert asked["sample"].shape == (2, 4, 16, 16)
        for used in residuals_given(asked):
            assert len(used) == 2
            assert not used[0].any()
            assert used[1].any()


def test_guess_mode_sees_the_prompt_and_not_the_empty_one(guess):
    words, nothing = (
        made["last_hidden_state"] for made in guess["text_encoder"].answered
    )
    for asked in guess["controlnet"].asked:
        assert torch.equal(asked["encoder_hidden_states"], words)
    for asked in guess["controlled_unet"].asked:
        states = torch.cat([nothing, words])
        assert torch.equal(asked["encoder_hidden_states"], states)


def network(role):
    return TorchNetwork(describe(role, role, SOURCE), RESIDENTS, Device())


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.standard_normal((2, 4, 16, 16), dtype=np.float32))


@pytest.fixture(scope="module")
def states():
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.standard_normal((2, 77, 64), dtype=np.float32))


@pytest.mark.parametrize("timestep", [torch.tensor(981), torch.tensor(958.9)])
def test_a_unet_answers_as_diffusers_own(sample, states, timestep):
    role = UNetRole(network("unet"), SOURCE, torch.float32)
    made = role(sample, timestep, encoder_hidden_states=states, return_dict=False)[0]
    own = diffusers.UNet2DConditionModel.from_pretrained(DIGITS / "unet").eval()
    with torch.no_grad():
        expected = own(sample, timestep, encoder_hidden_states=states).sample
    assert torch.equal(made, expected)
    assert dict(role.config).items() >= {"in_channels": 4, "sample_size": 16}.items()


def vae_seat(**factors):
    return VaeRole(
        network("vae_encoder"), network("vae_decoder"), SOURCE, torch.float32, factors
    )


def test_each_half_of_an_autoencoder_may_scale_otherwise(sample):
    pictures = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
    plain, other = vae_seat(), vae_seat(vae_encoder=0.63462 * 2)
    torch.testing.assert_close(
        other.encode(pictures).latents, plain.encode(pictures).latents * 2
    )
    assert torch.equal(other.decode(sample)[0], plain.decode(sample)[0])
    halved = vae_seat(vae_decoder=0.63462 * 2).decode(sample)[0]
    torch.testing.assert_close(halved, plain.decode(sample / 2)[0])


def test_a_scaling_factor_of_the_app_is_what_its_pipeline_would_have():
    plan = pipeline(prompts=("three",))
    inputs = draw_inputs(plan)
    ours, _ = drawn(plan, inputs, factors={"vae_decoder": 0.5})
    vae = diffusers.AutoencoderKL.from_pretrained(DIGITS / "vae", scaling_factor=0.5)
    theirs = called(real(vae=vae), plan, height=64, width=64, **begun(inputs))
    # latents / 0.63462 / (0.5 / 0.63462) against latents / 0.5: roundings differ.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.01)
    assert np.abs(ours - drawn(plan, inputs)[0]).max() > 1


def test_stored_tokens_are_the_tokenizers_own():
    plan = pipeline(negative_prompt="blue ink", added_prompt="red ink")
    own = CLIPTokenizer.from_pretrained(DIGITS / "tokenizer")
    stored = StoredTokens(draw_inputs(plan).ids["text_encoder"])
    settings = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}
    for texts in ([*plan.texts, "blue ink"], "blue ink"):
        expected = own(texts, max_length=77, **settings).input_ids
        assert torch.equal(stored(texts, max_length=77, **settings).input_ids, expected)
    assert stored.model_max_length == own.model_max_length


def test_a_text_that_was_not_stored_has_no_tokens():
    with pytest.raises(KeyError):
        StoredTokens(draw_inputs(pipeline()).ids["text_encoder"])(["nine"])


def test_latents_alone_are_not_decoded():
    plan = pipeline(prompts=("three",))
    inputs = draw_inputs(plan)
    players = cast(plan)
    made = draw(assemble(plan, inputs, players), plan, inputs, decode=False)
    assert made.shape == (1, 4, 16, 16)
    assert players.networks["vae_decoder"].asked == []


def test_every_step_is_told_and_may_be_replaced():
    plan = pipeline(prompts=("three",))
    inputs = draw_inputs(plan)
    told = []

    def on_step(step, timestep, latents, scheduler):
        told.append((step, timestep, type(scheduler).__name__))
        return torch.zeros_like(latents)

    made = draw(
        assemble(plan, inputs, cast(plan)), plan, inputs, on_step=on_step, decode=False
    )

    assert told == [(0, 501.0, "DDIMScheduler"), (1, 1.0, "DDIMScheduler")]
    assert not made.any()


def test_double_precision_is_computed_outside_the_networks_too():
    plan = pipeline(prompts=("three",))
    inputs = draw_inputs(plan)
    networks = torch_networks(plan, RESIDENTS, Device(), torch.float64)
    players = PipelineParts(
        networks=networks, sampling=plan.sampling, dtype=torch.float64
    )

    pipe = assemble(plan, inputs, players)
    exact = draw(pipe, plan, inputs, decode=False)
    single = draw(assemble(plan, inputs, cast(plan)), plan, inputs, decode=False)

    assert exact.dtype == np.float64
    assert 0 < np.abs(exact - single).max() < 1e-4
    assert (exact != exact.astype(np.float32)).any()


def test_an_outdated_scheduler_is_mended_but_not_the_apps():
    plan = pipeline(sampling=Sampling(options=(("steps_offset", 0),)))
    inputs = draw_inputs(plan)
    mended = assemble(plan, inputs, cast(plan))
    own = assemble(plan, inputs, cast(plan, own_sampling=True))
    assert mended.scheduler.config.steps_offset == 1
    assert own.scheduler.config.steps_offset == 0
