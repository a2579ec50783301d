"""Make schedulers from a checkpoint's configuration, compare them, restore their state.

Two pipelines whose timesteps differ compute different things, even if their networks
agree. So schedules are compared exactly, as arrays, before any network runs.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.core.toml_file import did_you_mean
from harness.plugins.pipelines.case import SCHEDULERS, Pipeline, Sampling
from harness.recipes.checkpoint import load_scheduler

_ARRAYS = ("timesteps", "sigmas", "alphas_cumprod", "init_noise_sigma")
_SHOWN = 4


def make_scheduler(source: Source, sampling: Sampling) -> Any:
    """Return a scheduler of diffusers, from the checkpoint's own configuration."""
    import diffusers

    own = load_scheduler(source)
    name = SCHEDULERS.get(sampling.scheduler) or type(own).__name__
    # diffusers itself leaves out settings that another scheduler does not have, as when
    # an app changes the scheduler of a pipeline.
    cls = getattr(diffusers, name)
    known = inspect.signature(cls).parameters
    for option, _ in sampling.options:
        if option not in known:
            msg = f"{name} has no option {option!r}; {did_you_mean(option, known)}"
            raise SuiteError(msg)
    return cls.from_config(own.config, **dict(sampling.options))


def schedule_of(pipe: Any, pipeline: Pipeline) -> dict[str, np.ndarray]:
    """Return all arrays that decide the latents of a step, in float64.

    Returns:
        ``timesteps``, ``sigmas``, ``alphas_cumprod`` and ``init_noise_sigma``, as far
        as the scheduler has them.

    """
    scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config)
    scheduler.set_timesteps(pipeline.steps)
    found = {name: getattr(scheduler, name, None) for name in _ARRAYS}
    return {
        name: np.atleast_1d(np.asarray(value, dtype=np.float64))
        for name, value in found.items()
        if value is not None
    }


def schedule_gap(
    expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray]
) -> str:
    """Return a message about how two schedules differ; empty when they are equal.

    >>> one = {"timesteps": np.array([801.0, 1.0])}
    >>> schedule_gap(one, {"timesteps": np.array([800.0, 0.0])})
    'timesteps [800, 0], expected [801, 1]'
    >>> schedule_gap(one, one)
    ''
    """
    for name in dict.fromkeys((*expected, *actual)):
        one, two = expected.get(name), actual.get(name)
        if one is None or two is None:
            return f"{name} is {'missing' if two is None else 'not in the reference'}"
        if one.shape != two.shape:
            return f"{len(two)} {name}, expected {len(one)}: {_few(two)}, {_few(one)}"
        if not np.array_equal(one, two):
            start = int(np.flatnonzero(one != two)[0])
            return f"{name} {_few(two[start:])}, expected {_few(one[start:])}"
    return ""


def settings_of(scheduler: Any) -> dict[str, Any]:
    """Return a scheduler's configuration, in types that JSON can hold."""
    return {
        name: str(value) if value in (math.inf, -math.inf) else value
        for name, value in scheduler.config.items()
        if isinstance(value, bool | int | float | str)
    }


def config_gap(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    """Return a message about the settings in which two schedulers differ.

    >>> config_gap({"steps_offset": 1, "_class_name": "A"}, {"steps_offset": 0})
    'steps_offset is 0, expected 1'
    """
    names = [name for name in expected if not name.startswith("_") and name in actual]
    return ", ".join(
        f"{name} is {actual[name]}, expected {expected[name]}"
        for name in names
        if actual[name] != expected[name]
    )


def _few(values: np.ndarray) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:_SHOWN])
    return f"[{shown}{', …' if len(values) > _SHOWN else ''}]"


def state_of(scheduler: Any) -> dict[str, Any]:
    """Return copies of a multistep scheduler's memory of earlier steps."""
    return {
        name: copy.deepcopy(value)
        for name, value in vars(scheduler).items()
        if not name.startswith("_internal") and _is_plain(value)
    }


def restore(scheduler: Any, state: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Give a scheduler the memory of another run, with floating tensors in `dtype`."""
    for name, value in state.items():
        now = getattr(scheduler, name, None)
        # Tables that were made with the schedule keep their own dtype.
        if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
            setattr(scheduler, name, value.clone().to(now.dtype))
        else:
            setattr(scheduler, name, _cast(value, dtype))


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, torch.Tensor | int | float | str)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_cast(entry, dtype) for entry in value)
    if isinstance(value, torch.Tensor):
        return value.clone().to(dtype) if value.is_floating_point() else value.clone()
    return value
