"""Realistic latents have at each timestep the noise that a pipeline gives a UNet."""

import json
import shutil

import diffusers
import numpy as np
import pytest
import torch

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.recipes import describe
from harness.recipes.diffusion.unet import denoising_inputs
from tests.places import DIGITS, FIXTURES

# Raised inside of diffusers, by numpy 2 where torch has no `copy` for it yet.
pytestmark = pytest.mark.filterwarnings("ignore:__array_:DeprecationWarning")

SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
SHAPES = {"batch": 2, "height": 32, "width": 32}
TIMESTEPS = (0, 1, 499, 999)
"""Those that samples step through."""

SAME_BITS = ("DDIMScheduler", "DDPMScheduler", "LCMScheduler", "PNDMScheduler")
SCALED = (
    "EulerAncestralDiscreteScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "LMSDiscreteScheduler",
)
"""Those whose `scale_model_input` is not the identity."""


def with_scheduler(tmp_path, name, **about):
    for folder in ("text_encoder", "vae", "unet", "controlnet"):
        (tmp_path / folder).symlink_to(DIGITS / folder)
    home = tmp_path / "scheduler"
    home.mkdir()
    about = {"_class_name": name, **SD, **about}
    (home / "scheduler_config.json").write_text(json.dumps(about))
    return Source(path=tmp_path, seed=0)


def latents(source, step, name="unet"):
    """Return the sample that is drawn, and the two draws that are mixed in it."""
    part = describe(name, name, source)
    seed = np.random.default_rng(step)
    made = denoising_inputs(part, SHAPES, step, np.random.default_rng(step))
    pair = [
        torch.from_numpy(seed.standard_normal(made["sample"].shape, dtype=np.float32))
        for _ in range(2)
    ]
    return torch.from_numpy(made["sample"]), *pair


@pytest.mark.parametrize("name", SCALED)
def test_latents_are_scaled_as_the_network_is_given_them(tmp_path, name):
    source = with_scheduler(tmp_path, name)
    for step, timestep in enumerate(TIMESTEPS):
        drawn, clean, noise = latents(source, step)
        scheduler = getattr(diffusers, name)(**SD)
        at = torch.tensor([timestep])
        noisy = scheduler.add_noise(clean, noise, at)
        expected = scheduler.scale_model_input(noisy, at[0])

        torch.testing.assert_close(drawn, expected, rtol=1e-4, atol=1e-4)
        assert drawn.std() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("name", SAME_BITS)
def test_latents_of_other_schedulers_are_their_own_to_the_bit(tmp_path, name):
    source = with_scheduler(tmp_path, name)
    for step, timestep in enumerate(TIMESTEPS):
        drawn, clean, noise = latents(source, step)
        scheduler = getattr(diffusers, name)(**SD)
        own = scheduler.add_noise(clean, noise, torch.tensor([timestep]))
        assert torch.equal(drawn, own)


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("DPMSolverMultistepScheduler", {}),
        ("UniPCMultistepScheduler", {}),
        ("HeunDiscreteScheduler", {"use_karras_sigmas": True}),
        ("EulerDiscreteScheduler", {"timestep_spacing": "leading", "steps_offset": 1}),
    ],
)
def test_the_last_timestep_is_the_noisiest(tmp_path, name, about):
    """Unset, some schedulers look timestep 0 up as the last, or find no 499."""
    source = with_scheduler(tmp_path, name, **about)
    shares = []
    for step in range(len(TIMESTEPS)):
        drawn, _, noise = latents(source, step)
        shares.append(float((drawn * noise).mean()))

    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.03, abs=0.05)
    assert shares[-1] == pytest.approx(1.0, abs=0.05)


def test_a_controlnet_is_given_the_same_latents(tmp_path):
    source = with_scheduler(tmp_path, "EulerDiscreteScheduler")
    assert torch.equal(latents(source, 3, "controlnet")[0], latents(source, 3)[0])


@pytest.mark.parametrize(
    "name", ["FlowMatchEulerDiscreteScheduler", "EDMEulerScheduler"]
)
def test_a_scheduler_without_training_timesteps_is_named(tmp_path, name):
    source = with_scheduler(tmp_path, name)
    with pytest.raises(SuiteError, match=rf"scheduler has a {name}, .*`profiles`"):
        latents(source, 0)


def test_an_inpainting_unet_has_such_latents_before_its_mask(tmp_path):
    channels = FIXTURES / "channels"
    copy = tmp_path / "channels"
    shutil.copytree(channels, copy)
    (copy / "scheduler").mkdir(exist_ok=True)
    about = {"_class_name": "EulerDiscreteScheduler", **SD}
    (copy / "scheduler" / "scheduler_config.json").write_text(json.dumps(about))
    part = describe(
        "unet_inpaint", "unet", Source(path=copy, seed=0), {"folder": "unet_inpaint"}
    )

    made = denoising_inputs(part, SHAPES, 3, np.random.default_rng(0))["sample"]

    assert made.shape[1] == 9
    assert made[:, :4].std() == pytest.approx(1.0, rel=0.05)
