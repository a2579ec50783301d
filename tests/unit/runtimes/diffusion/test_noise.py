"""Every pipeline gets the same bits of noise, in order, and no more than are stored."""

import sys

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from diffusers.schedulers import scheduling_ddim
from diffusers.utils.torch_utils import randn_tensor

from harness.core.case import Source
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.pipelines.case import Sampling
from harness.plugins.pipelines.drawing.draw import stored_noise
from harness.plugins.pipelines.drawing.schedule import make_scheduler
from tests.places import DIGITS

SHAPE = (1, 4, 2, 2)
NOISE = np.random.default_rng(0).standard_normal((3, *SHAPE), dtype=np.float32)


@pytest.fixture
def ddim():
    scheduler = make_scheduler(Source(path=DIGITS), Sampling(scheduler="ddim"))
    scheduler.set_timesteps(3)
    return scheduler


def drawn(**about):
    return scheduling_ddim.randn_tensor(SHAPE, **about)


def run(scheduler, noise, eta):
    """Latents after every step, all predictions being alike."""
    latents, made = torch.ones(SHAPE), []
    with stored_noise(noise, scheduler):
        for t in scheduler.timesteps:
            prediction = torch.full(SHAPE, 0.5)
            latents = scheduler.step(prediction, t, latents, eta=eta).prev_sample
            made.append(latents)
    return made


def test_noise_is_drawn_in_the_order_in_which_it_is_stored(ddim):
    with stored_noise(NOISE, ddim):
        for expected in NOISE:
            assert torch.equal(drawn(), torch.from_numpy(expected))
    assert scheduling_ddim.randn_tensor is randn_tensor


def test_no_generator_and_no_seed_changes_it(ddim):
    for seed in (1, 2):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        with stored_noise(NOISE, ddim):
            first = drawn(generator=generator, device=torch.device("cpu"))
        assert torch.equal(first, torch.from_numpy(NOISE[0]))


def test_who_changes_what_was_drawn_changes_nothing_stored(ddim):
    stored = NOISE.copy()
    with stored_noise(stored, ddim):
        drawn().zero_()
    np.testing.assert_array_equal(stored, NOISE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_another_dtype_is_cast_and_not_drawn_anew(ddim, dtype):
    with stored_noise(NOISE, ddim):
        made = drawn(dtype=dtype)
    assert made.dtype == dtype
    assert torch.equal(made, torch.from_numpy(NOISE[0]).to(dtype))


@pytest.mark.parametrize(
    ("stored", "shape", "said"),
    [
        (0, SHAPE, r"\(1, 4, 2, 2\), and none is left"),
        (3, (2, *SHAPE[1:]), r"shape \(2, 4, 2, 2\), and stored is \(1, 4, 2, 2\)"),
    ],
)
def test_other_noise_is_refused_and_modules_are_as_before(ddim, stored, shape, said):
    with (
        stored_noise(NOISE[:stored], ddim),
        pytest.raises(StageError, match=said) as refused,
    ):
        scheduling_ddim.randn_tensor(shape)
    assert refused.value.outcome is Outcome.RUN
    assert scheduling_ddim.randn_tensor is randn_tensor


def test_everybodys_module_draws_from_one_store(ddim):
    pipe = StableDiffusionPipeline.__new__(StableDiffusionPipeline)
    module = sys.modules[StableDiffusionPipeline.__module__]
    with stored_noise(NOISE, pipe, ddim):
        first = module.randn_tensor(SHAPE)
        second = drawn()
    assert torch.equal(first, torch.from_numpy(NOISE[0]))
    assert torch.equal(second, torch.from_numpy(NOISE[1]))


def test_ddim_takes_its_noise_from_the_store_step_by_step(ddim):
    one, again = run(ddim, NOISE, 0.7), run(ddim, NOISE, 0.7)
    other = run(ddim, np.concatenate([NOISE[:2], -NOISE[2:]]), 0.7)
    assert all(map(torch.equal, one, again))
    assert [torch.equal(a, b) for a, b in zip(one, other, strict=True)] == [
        True,
        True,
        False,
    ]


def test_without_eta_ddim_draws_nothing(ddim):
    assert len(run(ddim, NOISE[:0], 0.0)) == 3
