"""The record of one case: everything measured, nothing decided.

It is small, JSON, and can be judged again under other tolerances without a model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from harness.core.comparison import Comparison

LAYERS = "layers"
OUTPUTS = "outputs"
ISOLATED = "isolated"
"""Rows of operators that ran on the reference's own inputs; no check of its own."""

WHATS = (LAYERS, OUTPUTS)
"""The two checks of a case: values in between as watched, outputs as deployed."""

Key = tuple[str, str]
"""Suite and case: two suites of one run may both have a ``unet/mnn/fp32``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison: a probe on a sample.

    Attributes:
        sample: Sample id, ``realistic-1``.
        what: ``layers`` or ``outputs``; of a pipeline ``latents`` or ``image``.
        probe: Name of the value in the PyTorch program, or of the output.
        position: Order of execution in the PyTorch program, from 0.
        op: PyTorch operator.
        module: Module path in the checkpoint's own names.
        source: Source line of the model.
        parents: Nearest computed values it was made from.
        comparison: The measurement.
        looks: What a large error looks like, in words; empty where it is small, or
            like nothing known.

    """

    sample: str
    what: str
    probe: str
    position: int
    op: str
    module: str
    source: str
    parents: tuple[str, ...]
    comparison: Comparison
    looks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A stage that ended without an answer."""

    outcome: str
    message: str
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """All that one case left.

    Attributes:
        case: ``component/backend/variant``.
        component: First part of the id.
        backend: Second part.
        variant: Third part.
        suite: Path of the suite's file, in full; empty outside a run.
        rows: Every comparison, in order of execution within a sample.
        failure: Set when a stage ended without an answer; `rows` may then be short.
        asked: Device settings that were asked for.
        ran: What really ran.
        inputs: Sample to a digest of what decides its reference: weights,
            configuration and inputs; ``""`` stands for every sample.
        coverage: Counts of computing operators aligned, fused (and inside an aligned
            one) and unmatched.
        observer_max_abs: Largest difference between outputs of the watched run and
            of the deployed one, by sample.
        contract: Of each deployed file: what each input does alone, in PyTorch and in
            the file; which two the file takes for one another; and how far its answers
            to the same inputs differ.
        graphs: Of each graph of a case in full precision: which weights and attributes
            are not PyTorch's (`graph_check.check_graph`).
        rewrite_max_abs: Largest difference between the module's outputs and those of
            the program made from its exportable copy, over samples.
        chain: Of an end-to-end case: who sat in which seat, how errors grow, what
            guidance does to them, and which seats they come from.
        taken: Of a file that others made: how its values were lined up with PyTorch's,
            outputs that it leaves out or adds, inputs that it does without.
        stand_ins: What stood in for real inputs: ``weights``, ``prompts``,
            ``scheduler``, ``picture``, ``hint``, ``mask``.
        too_large: Sizes that the case was not tried at, for want of memory.
        artifacts: Store entries used: stage to digest, size and tool versions.
        took_s: Stage to seconds; stages whose product was in the store are absent.
        peak_bytes: Largest resident set of the candidate's process.
        log: Last native output of the candidate's process.

    """

    case: str
    component: str
    backend: str
    variant: str
    suite: str = ""
    rows: tuple[Row, ...] = ()
    failure: Failure | None = None
    asked: Mapping[str, Any]
    ran: Mapping[str, Any] | None = None
    inputs: Mapping[str, str] | None = None
    coverage: Mapping[str, Any] | None = None
    observer_max_abs: Mapping[str, float] | None = None
    contract: tuple[Mapping[str, Any], ...] = ()
    graphs: tuple[Mapping[str, Any], ...] = ()
    rewrite_max_abs: float | None = None
    chain: Mapping[str, Any] | None = None
    taken: Mapping[str, Any] | None = None
    stand_ins: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()
    artifacts: Mapping[str, Any] | None = None
    took_s: Mapping[str, float] | None = None
    peak_bytes: int = 0
    log: str = ""

    @property
    def key(self) -> Key:
        """What it is known by within a run."""
        return self.suite, self.case

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON values; rows as columns, so that 10,000 stay small."""
        data = {
            name: _strict(getattr(self, name))
            for name in self.__slots__
            if name != "rows"
        }
        data["failure"] = asdict(self.failure) if self.failure else None
        probes: dict[tuple[Any, ...], int] = {}
        measured = []
        for row in self.rows:
            about = tuple(getattr(row, name) for name in _ABOUT)
            at = probes.setdefault(about, len(probes))
            numbers = row.comparison.to_json()
            measured.append([row.sample, at, *(numbers[name] for name in _MEASURED)])
        data["probes"] = {"columns": _ABOUT, "rows": list(probes)}
        data["rows"] = {"columns": ("sample", "probe", *_MEASURED), "rows": measured}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CaseRecord:
        """Return what `to_json` wrote."""
        probes = [
            {**dict(zip(data["probes"]["columns"], row, strict=True))}
            for row in data["probes"]["rows"]
        ]
        for probe in probes:
            probe["parents"] = tuple(probe["parents"])
        measured = data["rows"]["columns"][2:]
        rows = tuple(
            Row(
                sample=sample,
                **probes[at],
                comparison=Comparison.from_json(
                    dict(zip(measured, numbers, strict=True))
                ),
            )
            for sample, at, *numbers in data["rows"]["rows"]
        )
        failure = Failure(**data["failure"]) if data["failure"] else None
        rest = {name: value for name, value in data.items() if name != "probes"}
        rest |= {name: _numbers(rest[name]) for name in _MEASURES if name in rest}
        for name in ("contract", "stand_ins", "too_large", "graphs"):
            rest[name] = tuple(rest.get(name, ()))
        return cls(**{**rest, "rows": rows, "failure": failure})


_ABOUT = tuple(name for name in Row.__slots__ if name not in {"sample", "comparison"})
_MEASURED = tuple(field.name for field in fields(Comparison))
_WORDS = ("nan", "inf", "-inf")
_MEASURES = ("observer_max_abs", "contract", "rewrite_max_abs", "chain")


def _strict(value: object) -> Any:  # noqa: ANN401  # what JSON holds
    """Return a value with words where JSON has no number: ``nan``, ``inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _strict(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    return value


def _numbers(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    if isinstance(value, dict):
        return {name: _numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return float(value) if value in _WORDS else value


def coverage_share(record: CaseRecord) -> float:
    """Return the share of computing operators that a record's run compared."""
    coverage = record.coverage
    if not coverage or not coverage["computing"]:
        return 0.0
    return float(coverage["aligned"] / coverage["computing"])


def seen_share(record: CaseRecord) -> float:
    """Return the share of computing operators whose error a compared value would show.

    What was fused into one compared value is computed with it, such as a cast. Two
    compared values vouch for one such operator, so that a runtime that does not show
    every second value is not covered by the others.
    """
    coverage = record.coverage
    if not coverage or not coverage["computing"]:
        return 0.0
    aligned = coverage["aligned"]
    beside = min(coverage.get("inside", 0), aligned // 2)
    return float((aligned + beside) / coverage["computing"])


def left_out(record: CaseRecord) -> Iterator[str]:
    """Yield in words what a record's run did not compare."""
    counts = record.coverage or {}
    fused, inside = counts.get("fused", 0), counts.get("inside", 0)
    if fused:
        part = "all" if inside == fused else f"{inside:,} of them"
        into = f", {part} into compared values" if inside else ""
        yield f"{fused:,} fused away{into}"
    if counts.get("unmatched"):
        yield f"{counts['unmatched']:,} unmatched"


def labels(records: Iterable[CaseRecord]) -> dict[Key, str]:
    """Return how each case is called: by its id, its suite before it if there are two.

    >>> about = {"component": "", "backend": "", "variant": "", "asked": {}}
    >>> one = CaseRecord(case="c", suite="/a/one/parity.toml", **about)
    >>> two = CaseRecord(case="c", suite="/a/two/parity.toml", **about)
    >>> list(labels([one]).values()), list(labels([one, two]).values())
    (['c'], ['one:c', 'two:c'])
    """
    return names_of(record.key for record in records)


def names_of(cases: Iterable[Key]) -> dict[Key, str]:
    """Return how each case is called, by suite and case."""
    keys = list(cases)
    suites = {suite for suite, _ in keys}
    short = {suite: Path(suite).parent.name for suite in suites}
    if len(set(short.values())) < len(suites):
        short = {suite: suite for suite in suites}
    if len(suites) <= 1:
        return {key: key[1] for key in keys}
    return {(suite, case): f"{short[suite]}:{case}" for suite, case in keys}


def save_record(record: CaseRecord, path: Path) -> None:
    """Write the record to `path` in one move."""
    temporary = path.with_suffix(".part")
    temporary.write_text(
        json.dumps(record.to_json(), allow_nan=False), encoding="utf-8"
    )
    temporary.replace(path)


def load_record(path: Path) -> CaseRecord:
    """Read what `save_record` wrote."""
    return CaseRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
