"""tuning.json: all that a tuning measured, from which it can be judged at any time."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.commands.tune.plan import Effort, Noise, Point, Tried
from harness.core.case import Sample
from harness.core.errors import SpecError, SuiteError
from harness.core.ladder import RTOL_LADDER
from harness.core.record import CaseRecord

SCHEMA = 1
FILE = "tuning.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTuning:
    """What is known of one case.

    Attributes:
        record: As a run's, except that each row is the extent of all its samples.
        points: Outputs, sample by sample.
        layers: Ids of the samples whose layers were compared.
        noise: How far outputs move when nothing but the circumstances do.

    """

    record: CaseRecord
    points: tuple[Point, ...] = field(repr=False)
    layers: tuple[str, ...] = field(repr=False)
    noise: tuple[Noise, ...]

    @property
    def worst(self) -> Point:
        """The sample whose outputs use most of what they were held to."""
        return max(self.points, key=lambda point: point.usage)

    @property
    def trade(self) -> tuple[float, ...]:
        """The atol that all samples' outputs need at each rtol of the ladder."""
        rungs = zip(*(point.required_atol for point in self.points), strict=True)
        return tuple(max(rung) for rung in rungs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A finished tuning.

    Attributes:
        id: Name of its folder.
        date: When, as ``2026-11-21``.
        suite: Path of the suite, in full.
        effort: What was asked for.
        versions: Of PyTorch and of each runtime.
        tried: Component to every input tried, in order.
        overflowed: Component to inputs on which the reference itself is not finite.
        cases: In the suite's order.
        took_s: Component to seconds.

    """

    id: str
    date: str
    suite: str
    effort: Effort
    versions: Mapping[str, str]
    tried: Mapping[str, tuple[Tried, ...]] = field(repr=False)
    overflowed: Mapping[str, tuple[str, ...]]
    cases: Mapping[str, CaseTuning]
    took_s: Mapping[str, float]

    def sample(self, component: str, name: str) -> Sample:
        """Return an input that was tried, by id."""
        return next(t.sample for t in self.tried[component] if t.sample.id == name)

    def independent(self, case: CaseTuning, *, layers: bool) -> int:
        """Return how many independent draws a case saw, of the family with fewest."""
        why = {t.sample.id: t for t in self.tried[case.record.component]}
        seen = case.layers if layers else [point.sample for point in case.points]
        counts = Counter(
            why[name].sample.profile for name in seen if why[name].why == "independent"
        )
        return min(counts.values(), default=0)


def save_tuning(tuning: Tuning, folder: Path) -> Path:
    """Write tuning.json in one move.

    Raises:
        SuiteError: The folder cannot be written to.

    """
    data = {
        "schema": SCHEMA,
        "id": tuning.id,
        "date": tuning.date,
        "suite": tuning.suite,
        "effort": asdict(tuning.effort),
        "versions": dict(tuning.versions),
        "tried": {
            name: [asdict(tried) for tried in every]
            for name, every in tuning.tried.items()
        },
        "overflowed": tuning.overflowed,
        "took_s": tuning.took_s,
        "cases": [
            {
                "record": case.record.to_json(),
                "points": [asdict(point) for point in case.points],
                "layers": case.layers,
                "noise": [asdict(noise) for noise in case.noise],
                "trade": {"rtol": RTOL_LADDER, "atol": case.trade},
            }
            for case in tuning.cases.values()
        ],
    }
    path = folder / FILE
    temporary = path.with_suffix(".part")
    text = json.dumps(_worded(data), allow_nan=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        msg = f"{folder} cannot be written to ({error.strerror}); give another --into."
        raise SuiteError(msg) from error
    return path


def load_tuning(folder: Path, name: str) -> Tuning:
    """Read a tuning by id, by path, or the newest as ``last``.

    Raises:
        SuiteError: There is none of that name, or another version wrote it.

    """
    path = find_tuning(folder, name)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            msg = (
                f"{path} has schema {schema}, this version reads {SCHEMA}; tune again."
            )
            raise SuiteError(msg)
        return _tuning(data)
    except (OSError, ValueError, KeyError, TypeError, SpecError) as error:
        msg = f"{path} is damaged ({type(error).__name__}: {error}); tune again."
        raise SuiteError(msg) from error


def find_tuning(folder: Path, name: str) -> Path:
    """Return the path of a tuning's file.

    Raises:
        SuiteError: There is none of that name.

    """
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


def _tuning(data: Mapping[str, Any]) -> Tuning:
    cases = {}
    for entry in data["cases"]:
        record = CaseRecord.from_json(entry["record"])
        cases[record.case] = CaseTuning(
            record=record,
            points=tuple(Point(**_numbered(point)) for point in entry["points"]),
            layers=tuple(entry["layers"]),
            noise=tuple(Noise(**_numbered(noise)) for noise in entry["noise"]),
        )
    return Tuning(
        id=data["id"],
        date=data["date"],
        suite=data["suite"],
        effort=Effort(**data["effort"]),
        versions=data["versions"],
        tried={
            name: tuple(Tried(sample=_sample(t["sample"]), why=t["why"]) for t in every)
            for name, every in data["tried"].items()
        },
        overflowed={name: tuple(ids) for name, ids in data["overflowed"].items()},
        cases=cases,
        took_s=data["took_s"],
    )


def _sample(data: Mapping[str, Any]) -> Sample:
    pairs = {key: tuple(map(tuple, data[key])) for key in ("shapes", "knobs")}
    return Sample(**{**data, **pairs})


def _worded(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    """Return a value with words where JSON has no number."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _worded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_worded(entry) for entry in value]
    return value


def _numbered(data: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `_worded` for the fields of a point or of noise."""
    words = {"nan", "inf", "-inf"}

    def number(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
        if isinstance(value, list):
            return tuple(number(entry) for entry in value)
        return float(value) if value in words else value

    return {key: number(value) for key, value in data.items()}
