"""Inputs that `parity tune` found to be worst, kept beside a suite and run with it.

[[input]]
cases = ["unet/mnn/fp32"]         # which run it, beside their own samples
label = "varied-s0-1184"          # its sample id
profile = "varied"                # or realistic
index = 0
seed = 3
shapes = { batch = 2, height = 16, width = 16 }
knobs = { "sample.scale" = 0.001 }  # of a varied one
why = "uses 0.9 of its limit, and no sample of the suite more than 0.6"
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.errors import SpecError
from harness.spec import PROFILES, VARIED, Case, Sample, check_name
from harness.toml_file import Table, TomlFile, did_you_mean

FILE: Final = "worst_inputs.toml"


def load_worst_inputs(
    path: Path, cases: Collection[str]
) -> dict[str, tuple[Sample, ...]]:
    """Return the samples that each of `cases` runs besides its own.

    Raises:
        SuiteError: The file is wrong, or names a case that the suite has not.

    """
    root = TomlFile.load(path).root
    entries = root.tables("input")
    root.done()
    found: dict[str, tuple[Sample, ...]] = {}
    for entry in entries:
        names, sample = _entry(entry)
        for at, name in enumerate(names):
            if name not in cases:
                text = (
                    f"the suite has no case {name!r}; {did_you_mean(name, cases)} "
                    "If it left the suite, take its name out here too; an [[input]] "
                    "without a case can go."
                )
                raise entry.error(text, "cases", at)
            if sample.id in {known.id for known in found.get(name, ())}:
                text = f"{name} already has an input labelled {sample.id!r}."
                raise entry.error(text, "label")
            found[name] = (*found.get(name, ()), sample)
    return found


def _entry(entry: Table) -> tuple[tuple[str, ...], Sample]:
    names = entry.take_list("cases", str)
    label = entry.take("label", str)
    profile = entry.choice("profile", (*PROFILES, VARIED))
    index, seed = entry.take("index", int), entry.take("seed", int)
    shapes, knobs = entry.table("shapes"), entry.table("knobs")
    entry.take("why", str, "")
    entry.done()
    try:
        check_name("label", label)
        sample = Sample(
            profile=profile,
            index=index,
            seed=seed,
            shapes=tuple(sorted((s, shapes.take(s, int)) for s in shapes.data)),
            knobs=tuple((name, knobs.take(name, float)) for name in knobs.data),
            label=label,
        )
    except SpecError as error:
        text = str(error)
        raise entry.error(text) from None
    return names, sample


def with_worst(cases: Sequence[Case], path: Path) -> list[Case]:
    """Add the inputs that a tuning has kept for each case, if it kept any.

    Raises:
        SuiteError: The file cannot be read, or speaks of another case.

    """
    if not path.is_file():
        return list(cases)
    worst = load_worst_inputs(path, [case.id for case in cases])
    return [
        replace(case, samples=(*case.samples, *worst.get(case.id, ())))
        for case in cases
    ]
