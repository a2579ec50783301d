"""UNets that were distilled with guidance take an embedding of its scale."""

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline

from harness.core.case import Source
from harness.recipes import describe
from harness.recipes.diffusion.unet import GUIDANCE, SCALE
from tests.unit import nets, recipe_runs

pytestmark = pytest.mark.slow

SHAPES = {"batch": 2, "height": 8, "width": 8}


@pytest.fixture(scope="module", params=[16, 17])
def unet(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    source = nets.small_checkpoint(folder / "whole")
    (folder / "lcm").mkdir()
    return describe(
        "unet",
        "unet",
        recipe_runs.changed(
            folder / "lcm", source, "unet", time_cond_proj_dim=request.param
        ),
    )


def test_the_embedding_is_that_of_diffusers(unet):
    given = recipe_runs.drawn(unet, SHAPES)[GUIDANCE]
    scales = torch.tensor([SCALE - 1.0, SCALE - 1.5])
    embed = StableDiffusionPipeline.get_guidance_scale_embedding
    expected = embed(None, scales, embedding_dim=given.shape[1])
    assert np.allclose(given, expected.numpy(), atol=1e-3)


@pytest.mark.parametrize("profile", ["realistic", "unit-normal"])
def test_the_outputs_depend_on_it(unet, profile):
    feeds = recipe_runs.drawn(unet, SHAPES, profile)
    made = recipe_runs.answers(unet, feeds)
    (other,) = recipe_runs.answers(unet, {**feeds, GUIDANCE: -feeds[GUIDANCE]})
    recipe_runs.check_signature(unet, made, SHAPES)
    assert not torch.allclose(made[0], other)


def test_another_network_has_no_such_input(tmp_path):
    source = Source(path=nets.small_checkpoint(tmp_path / "c"), seed=0)
    inputs = describe("unet", "unet", source).inputs
    assert GUIDANCE not in {spec.name for spec in inputs}
