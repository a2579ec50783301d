"""Stable Diffusion XL's recipes: two text encoders, sizes and crops, a VAE's scale."""

import json

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.recipes import describe, discover
from harness.recipes.diffusion.clip_text import token_ids
from tests.places import DIGITS, FIXTURES
from tests.unit import recipe_runs

XL = Source(path=FIXTURES / "sdxl", seed=0)
FULL_SIZE = FIXTURES / "full_size" / "sdxl_base"
SHAPES = {"batch": 2, "height": 8, "width": 12}


def part(name, source=XL, **options):
    return describe(name, name, source, options)


def drawn(component, profile="realistic"):
    return recipe_runs.drawn(component, SHAPES, profile)


def answers(component):
    feeds = drawn(component)
    made = recipe_runs.answers(component, feeds)
    names = [spec.name for spec in component.outputs]
    network = recipe_runs.network_of(component)
    return dict(zip(names, made, strict=True)), network, recipe_runs.tensors(feeds)


def changed(tmp_path, folder, **values):
    return recipe_runs.changed(tmp_path, XL.path, folder, **values)


def test_its_folders_are_found():
    assert discover(XL) == (
        *("text_encoder", "text_encoder_2", "vae_encoder", "vae_decoder"),
        *("unet", "controlnet", "controlled_unet"),
    )


@pytest.mark.parametrize("profile", ["unit-normal", "boundary"])
def test_a_refiner_has_the_second_encoder_alone(profile, tmp_path):
    (tmp_path / "text_encoder_2").symlink_to(XL.path / "text_encoder_2")
    text = part("text_encoder_2", Source(path=tmp_path, seed=0))
    known = json.loads((tmp_path / "text_encoder_2" / "config.json").read_text())
    ids = drawn(text, profile)["input_ids"]
    assert 0 <= ids.min() <= ids.max() < known["vocab_size"]


def test_the_first_encoder_gives_the_state_before_the_last():
    made, network, (ids,) = answers(part("text_encoder"))
    with torch.no_grad():
        states = network(ids, output_hidden_states=True).hidden_states
    assert torch.equal(made["penultimate_hidden_state"], states[-2])
    assert not torch.allclose(made["penultimate_hidden_state"], states[-1])


def test_the_second_encoder_gives_a_projected_pooled_output_too():
    made, network, (ids,) = answers(part("text_encoder_2"))
    with torch.no_grad():
        out = network(ids, output_hidden_states=True)

    assert list(made) == [
        *("text_embeds", "last_hidden_state", "penultimate_hidden_state")
    ]
    assert torch.equal(made["text_embeds"], out.text_embeds)
    assert torch.equal(made["penultimate_hidden_state"], out.hidden_states[-2])
    # The projection is not square here, so it cannot be left out.
    assert made["text_embeds"].shape[-1] != made["last_hidden_state"].shape[-1]


def test_the_first_stable_diffusion_reads_the_last_state():
    names = [spec.name for spec in part("text_encoder", Source(path=DIGITS)).outputs]
    assert names == ["last_hidden_state", "pooler_output"]


def test_the_second_tokenizer_pads_with_the_first_word():
    rng = np.random.default_rng(0)
    first, second = (
        token_ids(XL, 2, 0, rng, folder)
        for folder in ("text_encoder", "text_encoder_2")
    )
    assert set(first[:, -1].tolist()) == {599}
    assert set(second[:, -1].tolist()) == {0}
    assert (second == 599).sum(axis=1).tolist() == [1, 1]


def test_the_unet_is_called_as_its_pipeline_calls_it():
    made, network, feeds = answers(part("unet"))
    sample, timestep, states, text_embeds, time_ids = feeds
    with torch.no_grad():
        expected = network(
            sample,
            timestep,
            states,
            added_cond_kwargs={"text_embeds": text_embeds, "time_ids": time_ids},
        ).sample

    assert isinstance(network, UNet2DConditionModel)
    assert torch.equal(made["out_sample"], expected)


def test_realistic_conditions_come_from_both_encoders():
    feeds = drawn(part("unet"))
    assert feeds["encoder_hidden_states"].shape == (2, 77, 32 + 48)
    assert feeds["text_embeds"].shape == (2, 40)
    # original size, crop, target size, in pixels; four to a latent
    assert feeds["time_ids"].tolist() == [
        [32, 48, 0, 0, 32, 48],
        [40, 60, 4, 6, 32, 48],
    ]


@pytest.mark.parametrize("profile", ["unit-normal", "boundary"])
def test_sizes_and_crops_are_whole_pixels_in_any_profile(profile):
    sizes = drawn(part("unet"), profile)["time_ids"]
    assert (sizes == np.round(sizes)).all()
    assert sizes.min() >= 0


def test_the_refiner_takes_a_score_for_the_target_size(tmp_path):
    width = {"projection_class_embeddings_input_dim": 40 + 5 * 16}
    source = changed(tmp_path, "unet", **width)
    assert drawn(part("unet", source))["time_ids"][0].tolist() == [32, 48, 0, 0, 6]


def test_sizes_are_told_beside_a_tiny_autoencoder_too(tmp_path):
    """Its configuration counts stages under other names."""
    tiny = {"_class_name": "AutoencoderTiny", "encoder_block_out_channels": [8, 8, 8]}
    source = changed(tmp_path, "vae", **tiny)
    assert drawn(part("unet", source))["time_ids"][0].tolist() == [32, 48, 0, 0, 32, 48]


def test_a_condition_that_no_recipe_knows_is_refused(tmp_path):
    source = changed(tmp_path, "unet", addition_embed_type="image_hint")
    with pytest.raises(SuiteError, match=r"addition_embed_type = 'image_hint', and .*"):
        part("unet", source)


def test_latents_are_divided_by_the_checkpoints_own_factor():
    latents = drawn(part("vae_decoder"))["latent_sample"]
    assert latents.std() * 0.13025 == pytest.approx(1.0, rel=0.2)
