"""Every case over many runs: the runs in which a result moved, and what changed there.

Each run is compared with the run in which the result last moved. So even a drift shows
that is too slow to show between two neighbours. A run may lack a check, a time or a
result, or have a time that cannot be judged. This hides nothing: later runs are
compared with the last known result before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from harness.core.end_to_end import IMAGE
from harness.core.record import LAYERS, OUTPUTS
from harness.core.text import in_floors
from harness.engine.finished_run import CaseReport, Report
from harness.plugins.pictures.worst import psnr_db
from harness.plugins.release.diff import (
    RtolOf,
    RunChange,
    diff,
    floors_of,
    other_files,
    other_machine,
    other_versions,
)
from harness.plugins.release.thresholds import Change
from harness.plugins.release.times import doubt

_Key = tuple[str, str, str]
"""The case, the check or measurement, and for time or memory the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of several.

    Attributes:
        moved: Results that moved, each compared with the run in which it last moved.
        since: Other changes since the run before: versions, files, the commit.
        errors: Case to the worst error of its outputs, with its unit.
        doubts: Case and metric of each time without a verdict, and the reason.
        tells: Whether any check could be compared with an earlier run's.

    """

    run: str
    errors: Mapping[str, str]
    moved: tuple[RunChange, ...] = ()
    since: tuple[str, ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()
    tells: bool = True


def course(
    runs: Iterable[Report], rtol_of: Callable[[Report], RtolOf]
) -> Iterator[Step]:
    """Yield a step for each run, oldest first; nothing moves in the first.

    Memory keeps only those runs with which later ones are compared.
    """
    known: _Known | None = None
    before: Report | None = None
    for run in runs:
        doubts = {
            f"{benchmark.case}/{benchmark.metric}": doubt(benchmark)
            for benchmark in run.benchmarks
        }
        sound = tuple(benchmark for benchmark in run.benchmarks if not doubt(benchmark))
        timed = replace(run, benchmarks=sound)
        step = Step(
            run=run.id,
            errors={name: _error(case) for name, case in run.cases.items()},
            doubts=tuple((name, why) for name, why in doubts.items() if why),
        )
        if before is None or known is None:
            known = _Known(timed)
        else:
            moved, tells = known.compare(timed, rtol_of(run))
            since = tuple(_since(before, run)) if moved else ()
            step = replace(step, moved=tuple(moved), since=since, tells=tells)
        before = run
        yield step


class _Known:
    """The earlier run with which each result of the next run is compared."""

    def __init__(self, first: Report) -> None:
        self._first = first
        self._with_rows: dict[str, Report] = {}
        self._moved_in: dict[_Key, Report] = {}
        self._lacking: set[_Key] = set()
        self._add(first)

    def compare(self, run: Report, rtol_of: RtolOf) -> tuple[list[RunChange], bool]:
        """Return the results that moved, and whether any result could be compared."""
        moved: list[RunChange] = []
        tells = False
        timed_on = {
            (benchmark.case, benchmark.metric): benchmark.machine
            for benchmark in run.benchmarks
        }
        cases = (*self._first.cases, *run.cases, *self._with_rows)
        keys = dict.fromkeys([(name, "", "") for name in cases] + [*self._moved_in])
        for other in {id(one): one for one in map(self._source, keys)}.values():
            names = {key[0] for key in keys if self._source(key) is other}
            one, two = (
                each.only(lambda name, _: name in names)  # noqa: B023  # used at once
                for each in (other, run)
            )
            found = diff(one, two, rtol_of)
            tells = tells or found.tells
            for finding in found.findings:
                key = finding.case, finding.what, ""
                if finding.of_machine:
                    key = *key[:2], timed_on.get(key[:2]) or run.machine
                if self._source(key) is other:
                    moved += self._take(key, finding, run)
        self._add(run)
        return moved, tells

    def _add(self, run: Report) -> None:
        for name, case in run.cases.items():
            if case.record.rows:
                self._with_rows.setdefault(name, run)

    def _source(self, key: _Key) -> Report:
        """Return the run in which a result last moved, or its case first had rows."""
        return self._moved_in.get(key) or self._with_rows.get(key[0], self._first)

    def _take(self, key: _Key, finding: RunChange, run: Report) -> list[RunChange]:
        """Learn from a finding, and return it if it says that something moved."""
        same = finding.change is Change.SAME
        case = run.cases.get(finding.case)
        failed = (
            case is not None
            and finding.what in case.ends
            and not case.rows[finding.what]
        )
        if failed or finding.change is Change.GONE:
            # Such a finding changes no known result, and is reported once.
            new = key not in self._lacking
            self._lacking.add(key)
            return [finding] if new and not same and not finding.of_machine else []
        again = key in self._lacking
        self._lacking.discard(key)
        if not same:
            self._moved_in[key] = run
        if finding.of_machine:
            told = finding.change in {Change.WORSE, Change.BETTER}
            return [finding] if told else []
        if again and same:
            return [replace(finding, change=Change.NEW, words="there again, the same")]
        return [] if same else [finding]


def _since(before: Report, after: Report) -> Iterator[str]:
    for tool, (one, two) in other_versions(before, after).items():
        yield f"{tool} {one} → {two}"
    yield from other_files(before, after)
    one, two = (str(run.environment.get("commit", "")) for run in (before, after))
    if one != two:
        yield f"commit {one[:8] or 'none'} → {two[:8] or 'none'}"
    if machines := other_machine(before, after):
        yield machines


def _error(case: CaseReport) -> str:
    """Return the worst error of a case's outputs, with its unit."""
    pictures = [_finite(row.comparison.rms) for row in case.rows[IMAGE]]
    if pictures:
        worst = max(pictures)
        return f"{psnr_db(worst):.1f} dB" if math.isfinite(worst) else "not finite"
    for what in (OUTPUTS, LAYERS):
        floors = [floors_of(row.comparison) for row in case.rows[what]]
        known = [_finite(value) for value in floors if value is not None]
        if known:
            return in_floors(max(known))
        if case.rows[what]:  # a file that is its own reference has no floors
            return f"{min(row.comparison.sqnr_db for row in case.rows[what]):.1f} dB"
    return "not compared"


def _finite(error: float) -> float:
    """Return an error that can be compared: NaN counts as infinite."""
    return math.inf if math.isnan(error) else error
