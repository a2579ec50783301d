"""Schedules are compared exactly, and a scheduler's memory is restored."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.plugins.pipelines.case import SCHEDULERS, Sampling
from harness.plugins.pipelines.drawing.schedule import (
    config_gap,
    make_scheduler,
    restore,
    schedule_gap,
    schedule_of,
    state_of,
)
from tests.places import DIGITS

# Of diffusers' own tables, which it makes with NumPy from PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")

SOURCE = Source(path=DIGITS)
SHAPE = (1, 4, 8, 8)
STEPS = 6
REMEMBERING = ("pndm", "dpm++", "heun", "lms", "unipc")
"""Schedulers whose step depends on those before."""


def pipe(scheduler) -> Any:
    """As much of a pipeline as a schedule is taken from."""
    return SimpleNamespace(scheduler=scheduler, steps=STEPS)


def make(name, **options):
    return make_scheduler(
        SOURCE, Sampling(scheduler=name, options=tuple(options.items()))
    )


def started(name):
    scheduler = make(name)
    scheduler.set_timesteps(STEPS)
    return scheduler


def schedule(name, **options):
    asked = pipe(make(name, **options))
    return schedule_of(asked, asked)


def tensors(seed, count):
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.standard_normal(SHAPE)).float() for _ in range(count)]


@pytest.mark.parametrize("name", ["", *SCHEDULERS])
def test_every_scheduler_is_made_from_the_checkpoints_own_configuration(name):
    made = make(name)
    assert type(made).__name__ == SCHEDULERS[name or "ddim"]
    assert made.config.beta_schedule == "scaled_linear"
    assert (made.config.beta_start, made.config.beta_end) == (0.00085, 0.012)
    assert made.config.steps_offset == 1
    assert made.config.timestep_spacing == "leading"


def test_options_replace_the_checkpoints():
    made = make("euler", timestep_spacing="trailing", steps_offset=0)
    assert (made.config.timestep_spacing, made.config.steps_offset) == ("trailing", 0)
    assert made.config.beta_start == 0.00085


def test_an_option_that_the_scheduler_does_not_have_is_refused():
    with pytest.raises(SuiteError, match="steps_ofset"):
        make("ddim", steps_ofset=0)


@pytest.mark.parametrize("name", ["", "ddim", "euler"])
def test_without_a_configuration_it_is_stable_diffusions(tmp_path, name):
    made = make_scheduler(Source(path=tmp_path, seed=0), Sampling(scheduler=name))
    assert type(made).__name__ == SCHEDULERS[name or "ddim"]
    assert (made.config.beta_start, made.config.beta_end) == (0.00085, 0.012)
    assert made.config.beta_schedule == "scaled_linear"


@pytest.mark.parametrize("name", SCHEDULERS)
def test_equal_settings_make_equal_schedules(name):
    made = schedule(name)
    assert {"timesteps", "alphas_cumprod", "init_noise_sigma"} <= set(made)
    assert ("sigmas" in made) == hasattr(make(name), "sigmas")
    assert all(array.dtype == np.float64 for array in made.values())
    assert len(made["timesteps"]) >= STEPS
    assert schedule_gap(made, schedule(name)) == ""


def test_a_schedule_leaves_the_pipelines_scheduler_as_it_was():
    scheduler = make("dpm++")
    scheduler.set_timesteps(3)
    schedule_of(pipe(scheduler), pipe(scheduler))
    assert len(scheduler.timesteps) == 3


def test_another_offset_is_said_in_timesteps_and_in_settings():
    one, two = make("ddim"), make("ddim", steps_offset=0)
    gap = schedule_gap(schedule("ddim"), schedule("ddim", steps_offset=0))
    # 1000 timesteps in 6 steps of 166, from the last.
    assert gap == "timesteps [830, 664, 498, 332, …], expected [831, 665, 499, 333, …]"
    assert config_gap(one.config, two.config) == "steps_offset is 0, expected 1"


@pytest.mark.parametrize(
    ("name", "one", "two", "said"),
    [
        pytest.param(
            *("timesteps", [3.0, 2.0, 1.0], [3.0, 2.0, 0.0]),
            "timesteps [0], expected [1]",
            id="only-what-differs",
        ),
        pytest.param(
            *("sigmas", [14.6146, 1.0], np.nextafter([14.6146, 1.0], 0)),
            "sigmas [14.6146, 1], expected [14.6146, 1]",
            id="one-rounding",
        ),
        pytest.param(
            *("sigmas", [1.0, np.nan], [1.0, np.nan]),
            "sigmas [nan], expected [nan]",
            id="not-finite",
        ),
        pytest.param("sigmas", [14.6146, 1.0], [14.6146, 1.0], "", id="equal"),
    ],
)
def test_every_bit_of_a_schedule_counts(name, one, two, said):
    assert schedule_gap({name: np.array(one)}, {name: np.array(two)}) == said


def test_another_number_of_timesteps_is_counted():
    gap = schedule_gap(schedule("ddim"), schedule("heun"))
    assert gap.startswith("11 timesteps, expected 6: [831, 665, 665, 499, …], [831,")


def test_an_array_that_one_side_lacks_is_named():
    ddim, other = schedule("ddim"), schedule("euler")
    del other["alphas_cumprod"]
    other["timesteps"] = ddim["timesteps"]
    assert schedule_gap(ddim, other) == "alphas_cumprod is missing"
    other["alphas_cumprod"] = ddim["alphas_cumprod"]
    other["init_noise_sigma"] = ddim["init_noise_sigma"]
    assert schedule_gap(ddim, other) == "sigmas is not in the reference"


def test_settings_that_one_scheduler_lacks_do_not_differ():
    ddim, euler = make("ddim").config, make("euler", prediction_type="sample").config
    assert config_gap(ddim, euler) == "prediction_type is sample, expected epsilon"


def run(name, predictions, start, between=lambda *_: None):
    """Every step from the latents of the step before; `between` may act after one."""
    scheduler = started(name)
    latents, made = start, []
    for step, t in enumerate(scheduler.timesteps):
        scheduler.scale_model_input(latents, t)
        latents = scheduler.step(predictions[step], t, latents).prev_sample
        made.append(latents)
        latents = between(scheduler, step, latents)
    return made


def free(name, predictions, start):
    """A run of its own, and what its scheduler remembered after every step."""
    states = []

    def kept(scheduler, _, latents):
        states.append(state_of(scheduler))
        return latents

    return run(name, predictions, start, kept), states


def count(name):
    return len(started(name).timesteps)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_forced_run_with_the_same_predictions_makes_the_same_bits(name):
    predictions = tensors(1, count(name))
    (start,) = tensors(2, 1)
    torch.manual_seed(0)
    alone, states = free(name, predictions, start)

    def forced(scheduler, step, _):
        restore(scheduler, states[step], torch.float32)
        return alone[step].clone()

    torch.manual_seed(0)  # the ancestral scheduler draws noise
    for one, two in zip(alone, run(name, predictions, start, forced), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("restored", [True, False])
def test_what_a_wrong_step_left_behind_is_forgotten(name, restored):
    """Each step of its own is wrong; the next starts as the reference's did."""
    predictions, wrong = tensors(1, count(name)), tensors(3, count(name))
    (start,) = tensors(2, 1)
    alone, states = free(name, predictions, start)
    scheduler = started(name)
    latents, equal = start, []

    for step, t in enumerate(scheduler.timesteps):
        scheduler.scale_model_input(latents, t)
        before = states[step - 1] if step else state_of(scheduler)
        scheduler.step(wrong[step], t, latents)
        if not restored:  # as far as where it is
            before = {"_step_index": before.get("_step_index")}
            before |= {"counter": step} if hasattr(scheduler, "counter") else {}
        restore(scheduler, before, torch.float32)
        scheduler.scale_model_input(latents, t)
        made = scheduler.step(predictions[step], t, latents).prev_sample
        equal.append(torch.equal(made, alone[step]))
        if restored:
            restore(scheduler, states[step], torch.float32)
        latents = alone[step].clone()

    assert all(equal) is restored


def blank(scheduler):
    """Overwrite every tensor that a scheduler holds."""
    for value in vars(scheduler).values():
        for held in value if isinstance(value, list) else [value]:
            if isinstance(held, torch.Tensor):
                held.zero_()


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_state_is_a_copy_when_it_is_taken_and_when_it_is_given(name):
    predictions, (start,) = tensors(1, count(name)), tensors(2, 1)
    taken = {}

    def between(scheduler, step, latents):
        if step == 1:
            taken.update(state_of(scheduler))
            taken["seen"] = repr(taken)
            blank(scheduler)
        return latents

    run(name, predictions, start, between)
    seen = taken.pop("seen")
    assert repr(taken) == seen

    scheduler = started(name)
    restore(scheduler, taken, torch.float32)
    blank(scheduler)
    assert repr(taken) == seen


@pytest.mark.parametrize("name", SCHEDULERS)
def test_tables_keep_their_dtype_and_memory_takes_the_pipelines(name):
    predictions, (start,) = tensors(1, count(name)), tensors(2, 1)
    _, states = free(name, predictions, start)
    scheduler = started(name)
    tables = {
        key: value.dtype
        for key, value in vars(scheduler).items()
        if isinstance(value, torch.Tensor)
    }

    restore(scheduler, states[2], torch.float64)

    assert "timesteps" in tables
    for key, dtype in tables.items():
        assert getattr(scheduler, key).dtype == dtype, key
    kept = [
        value
        for key in ("ets", "model_outputs", "derivatives")
        for value in getattr(scheduler, key, ())
        if isinstance(value, torch.Tensor)
    ]
    assert all(value.dtype == torch.float64 for value in kept)
    assert bool(kept) == (name in {"pndm", "dpm++", "lms", "unipc"})


@pytest.mark.parametrize("name", REMEMBERING)
def test_double_precision_goes_on_from_a_single_precision_memory(name):
    predictions, (start,) = tensors(1, count(name)), tensors(2, 1)
    alone, states = free(name, predictions, start)
    exact = [value.double() for value in predictions]

    def forced(scheduler, step, _):
        restore(scheduler, states[step], torch.float64)
        return alone[step].double()

    made = run(name, exact, start.double(), forced)

    for one, two in zip(alone, made, strict=True):
        assert two.dtype == torch.float64
        assert not torch.equal(one.double(), two)
        torch.testing.assert_close(one.double(), two, rtol=0, atol=2e-5)
