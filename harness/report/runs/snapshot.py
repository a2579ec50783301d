"""A run without what only a close look needs: a few numbers a row, for comparing runs.

A report of 50 MB becomes well under one, which a repository can keep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.core.record import ISOLATED, names_of
from harness.engine.run_folder import damaged, read_report

DIGITS = 3
"""Significant digits of an error: half a percent, where a tenth is what counts."""

REFERENCE_DIGITS = 6
"""Of what identifies a reference, which may differ by rounding only."""

PEAK = 255.0
"""Of a picture's levels."""

_ROW = ("sample", "probe", "nonfinite", "expected_rms", "floor", "rms")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRow:
    """One comparison, as far as another run's is held against it.

    Attributes:
        sample: Sample id.
        what: Which check it belongs to.
        probe: Name of the value.
        module: Module path, empty for outputs.
        shape: Of the reference's array.
        nonfinite: Places at which one side alone is finite; the errors leave them out.
        expected_rms: Root mean square of the reference's values.
        floor: The noise floor that the error is counted in; None if not known.
        rms: The error's rms; NaN where it could not be measured.
        atol: The required atol at each rtol of the ladder.

    """

    sample: str
    what: str
    probe: str
    module: str
    shape: tuple[int, ...]
    nonfinite: int
    expected_rms: float
    floor: float | None
    rms: float
    atol: tuple[float, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by within a case."""
        return self.what, self.sample, self.probe

    @property
    def floors(self) -> float | None:
        """The error in noise floors."""
        if self.floor is None:
            return None
        if self.rms == 0.0:
            return 0.0
        return self.rms / self.floor if self.floor else math.inf


def psnr_db(rms: float) -> float:
    """Return a picture's peak signal to noise from its error's rms.

    >>> round(psnr_db(2.55)), psnr_db(0.0)
    (40, inf)
    """
    return 20 * math.log10(PEAK / rms) if rms > 0.0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCase:
    """One case, as far as another run's is held against it.

    Attributes:
        suite: Path of its suite's file; not written, for it means something only here.
        outcomes: Check to how it ended, known gaps considered.
        reasons: Check to that in words.
        asked: Device settings that were asked for.
        inputs: Sample to a digest of what decides its reference: weights,
            configuration and inputs; ``""`` stands for every sample.
        coverage: Share of computing operators compared; None without layers.
        size_bytes: Of the deployed files.
        peak_bytes: Largest resident set of the candidate's process.
        rows: Every comparison.

    """

    suite: str
    outcomes: Mapping[str, str]
    reasons: Mapping[str, str]
    asked: Mapping[str, Any]
    inputs: Mapping[str, str]
    coverage: float | None
    size_bytes: int
    peak_bytes: int
    rows: tuple[KeptRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Repeated measurements of one thing; less is better.

    Attributes:
        case: Its id.
        metric: What was measured, its unit last: ``latency_ms``.
        runs: Every measurement.
        over_pytorch: Of each round, its time over PyTorch's in that round; empty if
            PyTorch was not timed beside it.
        withheld: Share of the processor time, of it or of PyTorch beside it, that went
            to others; None where the system does not say.

    """

    case: str
    metric: str
    runs: tuple[float, ...]
    over_pytorch: tuple[float, ...] = ()
    withheld: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A finished run in short.

    Attributes:
        id: The run's, which is its time.
        files: The files that describe the suite to their digests.
        environment: Machine, versions and commit, as a report has them.
        cases: By the name that summaries give them.
        benchmarks: Repeated measurements, where some were made.
        names: All cases of the run, also where only one was read; not written.
        whole: Whether it was of all that its suites have; not written.
        judged_by: Options that put other tolerances in the suite's place; not written.

    """

    id: str
    files: Mapping[str, str]
    environment: Mapping[str, Any]
    cases: Mapping[str, KeptCase]
    benchmarks: tuple[Benchmark, ...] = ()
    names: tuple[str, ...] = ()
    whole: bool = True
    judged_by: str = ""

    @property
    def name(self) -> str:
        """The folder of its suite, or of each."""
        paths = {case.suite for case in self.cases.values()}
        return "+".join(sorted({Path(path).parent.name for path in paths}))

    @property
    def machine(self) -> str:
        """What two timings must share to be held together."""
        return str(self.environment["id"])

    @property
    def versions(self) -> dict[str, str]:
        """Everything that can move a number without the suite changing."""
        about = self.environment
        return {"python": about["python"], **about["packages"]}

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON values; rows as columns, which compress best."""
        return {
            "id": self.id,
            "files": dict(self.files),
            "environment": dict(self.environment),
            "cases": {name: _case_json(case) for name, case in self.cases.items()},
            "benchmarks": [asdict(entry) for entry in self.benchmarks],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """Return what `to_json` wrote."""
        return cls(
            id=data["id"],
            files=data["files"],
            environment=data["environment"],
            cases={name: _case(case) for name, case in data["cases"].items()},
            benchmarks=benchmarks_of(data["benchmarks"]),
        )


def benchmarks_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Benchmark, ...]:
    """Read a report's table of repeated measurements."""
    return tuple(
        Benchmark(
            case=entry["case"],
            metric=entry["metric"],
            runs=tuple(map(float, entry["runs"])),
            over_pytorch=tuple(map(float, entry.get("over_pytorch", ()))),
            withheld=entry.get("withheld"),
        )
        for entry in entries
    )


def load_snapshot(path: Path, only: str = "") -> Snapshot:
    """Read what comparing needs of a finished run's report.

    Args:
        path: The report.
        only: The case to read, where no other is needed; it may then be lacking.

    Raises:
        SuiteError: The report cannot be read.

    """
    data = read_report(path)
    try:
        return snapshot(data, only)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def snapshot(report: Mapping[str, Any], only: str = "") -> Snapshot:
    """Return what comparing needs of a report's JSON, of one case if it is named."""
    names = names_of((case["suite"], case["case"]) for case in report["cases"])
    told: dict[str, list[Mapping[str, str]]] = {}
    # In a report their order is that of a set.
    for verdict in sorted(report["verdicts"], key=lambda one: one["id"]):
        case = verdict["id"].rpartition("/")[0]
        told.setdefault(names[verdict["suite"], case], []).append(verdict)
    cases = {names[case["suite"], case["case"]]: case for case in report["cases"]}
    suites = report["suites"]
    return Snapshot(
        id=report["id"],
        files={
            name if len(suites) == 1 else f"{Path(suite['path']).parent.name}/{name}": d
            for suite in suites
            for name, d in suite["files"].items()
        },
        environment=report["environment"],
        cases={
            name: _kept(case, told.get(name, ()))
            for name, case in sorted(cases.items())
            if only in {"", name}
        },
        benchmarks=tuple(
            entry
            for entry in benchmarks_of(report.get("benchmarks", ()))
            if only in {"", entry.case}
        ),
        names=tuple(sorted(cases)),
        # A report of an earlier version does not tell.
        whole=report.get("whole", True),
        judged_by=_judged_by(report),
    )


def _judged_by(report: Mapping[str, Any]) -> str:
    tier = [f"--tier {report['tier']}"] if report["tier"] else []
    return " ".join([*tier, *(f"--set {change}" for change in report["changes"])])


def _kept(case: Mapping[str, Any], told: Iterable[Mapping[str, str]]) -> KeptCase:
    verdicts = {verdict["id"].rpartition("/")[2]: verdict for verdict in told}
    coverage = case["coverage"]
    return KeptCase(
        suite=case["suite"],
        outcomes={what: found["outcome"] for what, found in verdicts.items()},
        reasons={what: found["reason"] for what, found in verdicts.items()},
        asked=case["asked"],
        inputs=case.get("inputs") or {},
        coverage=round(coverage["aligned"] / coverage["computing"], 4)
        if coverage and coverage["computing"]
        else None,
        size_bytes=_size(case),
        peak_bytes=case["peak_bytes"],
        rows=tuple(_rows(case)),
    )


def _size(case: Mapping[str, Any]) -> int:
    """Return the size of what is deployed: one file's, or that of every seat's."""
    artifacts = case["artifacts"] or {}
    own = artifacts.get(case["backend"])
    entries = [own] if own else artifacts.values()
    return sum(entry["size_bytes"] for entry in entries)


def _rows(case: Mapping[str, Any]) -> Iterator[KeptRow]:
    about = case["probes"]["columns"]
    probes = [dict(zip(about, row, strict=True)) for row in case["probes"]["rows"]]
    columns = case["rows"]["columns"]
    for values in case["rows"]["rows"]:
        row = dict(zip(columns, values, strict=True))
        probe = probes[row["probe"]]
        if probe["what"] == ISOLATED:
            continue
        floor = _floor(row)
        yield KeptRow(
            sample=row["sample"],
            what=probe["what"],
            probe=probe["probe"],
            module=probe["module"],
            shape=tuple(row["expected_shape"]),
            nonfinite=row["nonfinite_mismatched"],
            expected_rms=_short(row["expected_rms"], REFERENCE_DIGITS),
            floor=None if floor is None else _short(floor),
            rms=_short(row["rms"]),
            atol=tuple(map(_short, row["required_atol"])),
        )


def _floor(row: Mapping[str, Any]) -> float | None:
    """Return the floor that an error was really counted in."""
    if row["floor_rms"] is None:
        return None
    # It is at least the unit roundoff of the values, which the multiple tells.
    multiple = float(row["floor_multiple"])
    if multiple and math.isfinite(multiple):
        return float(row["rms"]) / multiple
    return float(row["floor_rms"])


def _short(value: float | str, digits: int = DIGITS) -> float:
    return float(f"{float(value):.{digits - 1}e}")


def _case_json(case: KeptCase) -> dict[str, Any]:
    data = {name: getattr(case, name) for name in case.__slots__ if name != "rows"}
    data["suite"] = ""
    probes: dict[tuple[Any, ...], int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in _ROW}
    ladder: list[list[Any]] = []
    for row in case.rows:
        about = (row.what, row.probe, row.module, row.shape)
        columns["sample"].append(row.sample)
        columns["probe"].append(probes.setdefault(about, len(probes)))
        for name in _ROW[2:]:
            columns[name].append(_strict(getattr(row, name)))
        ladder.append([_strict(value) for value in row.atol])
    data["probes"] = list(probes)
    columns["atol"] = [list(step) for step in zip(*ladder, strict=True)]
    data["rows"] = columns
    return data


def _case(data: Mapping[str, Any]) -> KeptCase:
    rest = {name: value for name, value in data.items() if name != "probes"}
    return KeptCase(**{**rest, "rows": tuple(_case_rows(data["probes"], data["rows"]))})


def _case_rows(
    probes: Sequence[Sequence[Any]], columns: Mapping[str, Sequence[Any]]
) -> Iterator[KeptRow]:
    ladder = zip(*columns["atol"], strict=True)
    plain = zip(*(columns[name] for name in _ROW), strict=True)
    for values, atol in zip(plain, ladder, strict=True):
        sample, at, nonfinite, expected_rms, floor, rms = values
        what, probe, module, shape = probes[at]
        yield KeptRow(
            sample=sample,
            what=what,
            probe=probe,
            module=module,
            shape=tuple(shape),
            nonfinite=nonfinite,
            expected_rms=float(expected_rms),
            floor=None if floor is None else float(floor),
            rms=float(rms),
            atol=tuple(map(float, atol)),
        )


def _strict(value: float | None) -> float | str | None:
    """Return a number, or its name where JSON has none for it."""
    return str(value) if value is not None and not math.isfinite(value) else value
