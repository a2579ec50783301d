"""Worst inputs that `parity tune` found; they are kept beside a suite and run with it.

[[input]]
cases = ["unet/mnn/fp32"]         # the cases that run it, beside their own samples
label = "varied-s0-1184"          # the sample id
profile = "varied"                # or realistic
index = 0
seed = 3
shapes = { batch = 2, height = 16, width = 16 }
knobs = { "sample.scale" = 0.001 }  # parameters of a varied input
why = "uses 0.9 of its limit, and no sample of the suite more than 0.6"

Only outputs are compared on them, because an input is kept for its outputs.
Each function raises `SuiteError`, with file and line, if the file is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from msgspec import field

from harness.core.case import PROFILES, VARIED, Case, Sample, check_name
from harness.core.errors import SuiteError
from harness.core.toml_file import TomlFile
from harness.core.toml_schema import Keys, one_of, read

FILE: Final = "worst_inputs.toml"


class WorstInput(Keys, frozen=True, kw_only=True):
    """One input that is run beside a case's own samples.

    Attributes:
        cases: Ids of the cases that run it.
        label: Id of the sample.
        profile: Profile of the draw.
        index: Index of the draw.
        seed: Seed of the draw.
        shapes: Sizes by symbol.
        knobs: Parameters of a varied input.
        why: The reason why it is kept.

    """

    cases: tuple[str, ...]
    label: str
    profile: Annotated[str, one_of((*PROFILES, VARIED))]
    index: int
    seed: int
    shapes: dict[str, int] = field(default_factory=dict)
    knobs: dict[str, float] = field(default_factory=dict)
    why: str = ""


class WorstInputs(Keys, frozen=True, kw_only=True):
    """Inputs that a tuning found to be worst."""

    input: tuple[WorstInput, ...] = ()


def load_worst_inputs(
    path: Path, cases: Collection[str]
) -> dict[str, tuple[Sample, ...]]:
    """Return the samples that each of `cases` runs besides its own.

    Entries for other cases are ignored; `unknown_cases` finds them. The file need not
    exist.
    """
    found: dict[str, tuple[Sample, ...]] = {}
    for entry in _entries(path):
        sample = _sample(entry)
        for name in entry.cases:
            if name not in cases:
                continue
            if sample.id in {known.id for known in found.get(name, ())}:
                text = f"{name} already has an input labelled {sample.id!r}."
                raise entry.error(text, "label")
            found[name] = (*found.get(name, ()), sample)
    return found


def unknown_cases(path: Path, cases: Collection[str]) -> dict[str, str]:
    """Return the ``path:line`` of each case that the file names and `cases` lacks."""
    return {
        name: entry.place.where("cases", at)
        for entry in reversed(_entries(path))
        for at, name in enumerate(entry.cases)
        if name not in cases
    }


def _entries(path: Path) -> tuple[WorstInput, ...]:
    return read(TomlFile.load(path).root, WorstInputs).input if path.is_file() else ()


def _sample(entry: WorstInput) -> Sample:
    with entry.place.errors_at():
        check_name("label", entry.label)
    return Sample(
        profile=entry.profile,
        index=entry.index,
        seed=entry.seed,
        shapes=tuple(sorted(entry.shapes.items())),
        layers=False,
        knobs=tuple(entry.knobs.items()),
        label=entry.label,
    )


def with_worst(cases: Sequence[Case], path: Path) -> list[Case]:
    """Add the inputs that a tuning has kept for each case, if it kept any."""
    worst = load_worst_inputs(path, [case.id for case in cases])
    for case in cases:
        own = {sample.id for sample in case.samples}
        for sample in worst.get(case.id, ()):
            if sample.id in own:
                msg = (
                    f"{path}: {case.id} has a sample {sample.id!r} of its own; give "
                    "the input here another label."
                )
                raise SuiteError(msg)
    return [
        replace(case, samples=(*case.samples, *worst.get(case.id, ())))
        for case in cases
    ]
