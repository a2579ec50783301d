"""Recipes read channel counts from the configuration, and fill them as pipelines do."""

import json

import pytest
import torch

from harness.core.case import ExportSettings, Source
from harness.engine.keys import checkpoint_digest
from harness.engine.tasks import GRAPH
from harness.recipes import describe
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.unit import recipe_runs

SOURCE = Source(path=FIXTURES / "channels", seed=0)
XL = Source(path=FIXTURES / "sdxl", seed=0)
SHAPES = {"batch": 2, "height": 8, "width": 12}
NAMES = [part.name for part in load_suite(SOURCE.path).components]


def part(name, source=SOURCE, **about):
    recipe = name.partition("_")[0]
    return describe(name, recipe, source, {"folder": name, **about})


def drawn(component):
    return recipe_runs.drawn(component, SHAPES)


def answers(component):
    feeds = drawn(component)
    made = recipe_runs.answers(component, feeds)
    return made, recipe_runs.network_of(component), recipe_runs.tensors(feeds)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_keeps_its_signature(name):
    component = part(name)
    made, _, _ = answers(component)
    recipe_runs.check_signature(component, made, SHAPES)


@pytest.mark.parametrize(
    ("name", "channels"),
    [("unet_inpaint", 9), ("unet_pix2pix", 8), ("unet_depth", 5), ("unet_wide", 16)],
)
def test_what_stands_beside_the_latents_is_an_input(name, channels):
    component = part(name)
    assert component.inputs[0].shape[1] == channels
    assert component.outputs[0].shape[1] == (16 if name == "unet_wide" else 4)


def test_an_inpainting_unet_gets_a_mask_and_what_is_not_masked():
    sample = drawn(part("unet_inpaint"))["sample"]
    mask, seen = sample[:, 4], sample[:, 5:]
    assert set(mask.ravel().tolist()) == {0.0, 1.0}
    assert seen.std() > 0.01
    # Scaled as the pipeline scales them; InstructPix2Pix's are not.
    assert drawn(part("unet_pix2pix"))["sample"][:, 4:].std() > 2 * seen.std()


def test_hints_have_as_many_channels_as_the_controlnet_takes():
    assert drawn(part("controlnet_grey"))["controlnet_cond"].shape == (2, 1, 16, 24)
    wide = drawn(part("controlnet_wide"))
    assert wide["controlnet_cond"].shape == (2, 6, 16, 24)
    assert wide["sample"].shape == (2, 16, 8, 12)


def test_each_folder_makes_a_key_of_its_own(tmp_path):
    def keys():
        source = Source(path=tmp_path, seed=0)
        return [
            GRAPH.key(part(name, source), ExportSettings(), SHAPES)
            for name in ("unet_wide", "unet_inpaint")
        ]

    for name in ("unet_wide", "unet_inpaint", "text_encoder", "vae"):
        (tmp_path / name).mkdir()
        text = (SOURCE.path / name / "config.json").read_text()
        (tmp_path / name / "config.json").write_text(text)
    before = keys()
    config = json.loads((tmp_path / "unet_wide" / "config.json").read_text())
    config["norm_eps"] = 1e-3
    (tmp_path / "unet_wide" / "config.json").write_text(json.dumps(config))
    # Digests are remembered for the length of a process.
    checkpoint_digest.cache_clear()
    after = keys()

    assert [one == two for one, two in zip(before, after, strict=True)] == [False, True]


def test_a_controlnet_of_stable_diffusion_xl_takes_text_sizes_and_crop():
    component = part("controlnet", XL)
    made, network, feeds = answers(component)
    sample, timestep, states, text_embeds, time_ids, hint = feeds
    with torch.no_grad():
        down, middle = network(
            sample,
            timestep,
            states,
            hint,
            added_cond_kwargs={"text_embeds": text_embeds, "time_ids": time_ids},
            return_dict=False,
        )

    assert all(map(torch.equal, made, (*down, middle)))


def test_the_unet_of_stable_diffusion_xl_is_steered_by_such_a_controlnet():
    component = describe("controlled_unet", "controlled_unet", XL)
    made, network, feeds = answers(component)
    sample, timestep, states, text_embeds, time_ids, *residuals = feeds
    added = {"text_embeds": text_embeds, "time_ids": time_ids}

    def asked(residuals):
        with torch.no_grad():
            return network(
                sample,
                timestep,
                states,
                added_cond_kwargs=added,
                down_block_additional_residuals=residuals[:-1],
                mid_block_additional_residual=residuals[-1],
                return_dict=False,
            )[0]

    assert torch.equal(made[0], asked(tuple(residuals)))
    assert not torch.equal(made[0], asked(tuple(map(torch.zeros_like, residuals))))


def test_a_controlnet_of_one_encoder_steers_the_unet_of_xl(tmp_path):
    alone = {"addition_embed_type": None}
    source = recipe_runs.changed(tmp_path, XL.path, "controlnet", **alone)
    component = describe("controlled_unet", "controlled_unet", source)
    assert {"text_embeds", "time_ids"} <= set(drawn(component))
