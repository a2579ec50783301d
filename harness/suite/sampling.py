"""Read which scheduler draws, and refuse one that the checkpoint cannot be drawn by."""

from __future__ import annotations

import json

from harness.core.case import Source
from harness.core.pipeline import SCHEDULERS, SD3, Sampling
from harness.core.toml_file import Table
from harness.suite.families import family_of
from harness.suite.schema import Scheduled


def sampling_of(said: Scheduled, base: Sampling) -> Sampling:
    """Return the scheduler that a table states, where `base` fills in."""
    name = said.scheduler or base.scheduler
    kept = dict(base.options) if name == base.scheduler else {}
    options = {**kept, **(said.scheduler_options or {})}
    return Sampling(scheduler=name, options=tuple(options.items()))


def scheduler_of(sampling: Sampling, source: Source) -> str:
    """Return the class of diffusers that a scheduler is."""
    if sampling.scheduler:
        return SCHEDULERS[sampling.scheduler]
    path = source.path / "scheduler" / "scheduler_config.json"
    if not path.is_file():
        return SCHEDULERS["ddim"]
    return str(json.loads(path.read_text(encoding="utf-8"))["_class_name"])


def check_flow(table: Table, sampling: Sampling, source: Source) -> None:
    """Refuse a scheduler that takes a velocity for noise, or noise for a velocity."""
    name, family = scheduler_of(sampling, source), family_of(source)
    if name.startswith("FlowMatch") != (family == SD3):
        what = "a velocity" if family == SD3 else "noise"
        text = (
            f"{name} is no scheduler for a {family} checkpoint, which predicts {what}; "
            "leave `scheduler` out to take the one in the checkpoint's own folder."
        )
        raise table.error(text, *(key for key in ("scheduler",) if key in table))
