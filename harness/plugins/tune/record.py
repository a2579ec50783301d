"""tuning.json: everything that a tuning measured; it can be judged at any time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from harness.core import record_form
from harness.core.case import VARIED, Sample
from harness.core.errors import SuiteError
from harness.core.received import DamagedError, read_bytes
from harness.core.record import CaseRecord
from harness.core.record_form import Name, Number, Seconds
from harness.core.whole_file import write_whole, writing
from harness.engine.finished_run import decoded
from harness.engine.report_form import RunId
from harness.engine.run_folder import refuse_damaged
from harness.plugins.tune.draws import REALISTIC

SCHEMA = 2
FILE = "tuning.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The number of inputs to try.

    Attributes:
        samples: Number of independent draws of each family; it decides the assured
            share of inputs.
        layers: Number of these draws whose layers are compared too.
        seeds: Number of pairs of prompt and seed that a pipeline draws.

    """

    samples: int = 200
    layers: int = 59
    seeds: int = 20
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedInput:
    """One input that a tuning tried, and why.

    Attributes:
        why: The origin of the input: ``suite``, ``kept`` (by an earlier tuning), or
            ``independent``.

    """

    sample: Sample
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTuning:
    """The measurements of one case.

    Attributes:
        record: A record as of a run, but each row is the extent of all its samples.
        usage: The largest part of today's limits that a sample's outputs, or a
            pipeline's latents and pictures, use, by sample id.
        layers: Ids of the samples whose layers were compared.

    """

    record: CaseRecord
    usage: Mapping[str, float] = field(repr=False)
    layers: tuple[str, ...] = field(repr=False)

    @property
    def worst(self) -> str:
        """Id of the sample that uses most of today's limits."""
        return max(self.usage, key=self.usage.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The measurements of a tuning.

    Attributes:
        id: The name of its folder.
        date: The day, as ``2026-11-21``.
        suite: Absolute path of the suite.
        versions: Versions of PyTorch and of each runtime.
        tried: Every input that was begun, in order, by component or pipeline.
        overflowed: Inputs on which the reference itself is not finite, by component or
            pipeline. They are left out of everything else.
        took_s: Duration in seconds, by component or pipeline.

    """

    id: str
    date: str
    suite: str
    effort: Effort
    versions: Mapping[str, str]
    tried: Mapping[str, tuple[TriedInput, ...]] = field(repr=False)
    overflowed: Mapping[str, tuple[str, ...]]
    cases: Mapping[str, CaseTuning]
    took_s: Mapping[str, float]

    def independent(self, case: CaseTuning, *, layers: bool) -> int:
        """Return a case's number of draws, of the family with the fewest."""
        tried = self.tried[case.record.component]
        drawn = {
            one.sample.id: one.sample.profile
            for one in tried
            if one.why == "independent"
        }
        seen = case.layers if layers else case.usage
        counts = Counter(drawn[name] for name in seen if name in drawn)
        # A tuning that was stopped may not have begun with the second family.
        own = {
            one.sample.profile
            for one in tried
            if one.why == "suite" and one.sample.id in case.usage
        }
        families = (REALISTIC, VARIED) if own - {REALISTIC} else (REALISTIC,)
        return min(counts[family] for family in families)


class CaseForm(Struct):
    """The JSON form of `CaseTuning`."""

    record: record_form.CaseForm
    usage: Annotated[dict[Name, Number], Meta(min_length=1)]
    layers: tuple[Name, ...]


class TuningForm(Struct):
    """The JSON form of `Tuning`; `save_tuning` writes it.

    The suite's path is a name there; nothing opens it.
    """

    schema: int
    id: RunId
    date: Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\d\Z")]
    suite: Name
    effort: Effort
    versions: dict[Name, Name]
    tried: dict[Name, tuple[TriedInput, ...]]
    overflowed: dict[Name, tuple[Name, ...]]
    cases: list[CaseForm]
    took_s: dict[Name, Seconds]

    def __post_init__(self) -> None:
        for case in self.cases:
            if case.record.component not in self.tried:
                msg = f"`tried` has nothing of {case.record.component}"
                raise DamagedError(msg)


def save_tuning(tuning: Tuning, folder: Path) -> Path:
    """Write tuning.json in one move.

    Raises:
        ParityError: The folder cannot be written to.

    """
    data = {
        **to_builtins(replace(tuning, cases={})),
        "schema": SCHEMA,
        "cases": [
            {
                "record": case.record.to_json(),
                # As text, because JSON has no number for an infinite usage.
                "usage": {name: str(usage) for name, usage in case.usage.items()},
                "layers": case.layers,
            }
            for case in tuning.cases.values()
        ],
    }
    path = folder / FILE
    with writing(folder, "give another with --into"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(data, allow_nan=False))
    return path


def load_tuning(folder: Path, name: str) -> Tuning:
    """Read a tuning by id or by path; ``last`` is the newest.

    Raises:
        SuiteError: There is no tuning of that name, or another version wrote it.

    """
    path = _find(folder, name)
    with refuse_damaged(path, "tune again"):
        form = decoded(read_bytes(path), TuningForm, SCHEMA)
    told = {name: getattr(form, name) for name in Tuning.__slots__}
    told["cases"] = {
        case.record.case: CaseTuning(
            record=CaseRecord.of(case.record), usage=case.usage, layers=case.layers
        )
        for case in form.cases
    }
    return Tuning(**told)


def _find(folder: Path, name: str) -> Path:
    for path in (Path(name), Path(name) / FILE, folder / name / FILE):
        if path.is_file():
            return path
    made = sorted(path.parent for path in folder.glob(f"*/{FILE}"))
    if name == "last" and made:
        return made[-1] / FILE
    newest = ", ".join(path.name for path in made[-3:]) or "none"
    msg = (
        f"there is no tuning {name!r} under {folder}; the newest are {newest}. "
        "`parity tune` makes one."
    )
    raise SuiteError(msg)
