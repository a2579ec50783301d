"""One case over the kept runs: its error, time and size, and where they moved.

Each run is held against the one in which something last moved, so that a drift too slow
for any two neighbours shows as well. A run that lacks a check, a time or an answer
hides nothing, nor does a time that cannot be judged: what comes after it is held
against what was known before it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import ParityError, SuiteError
from harness.core.pipeline import IMAGE
from harness.core.record import LAYERS, OUTPUTS
from harness.core.text import few, in_floors
from harness.engine.run_folder import REPORT
from harness.report.runs.diff import Diff, Finding, diff
from harness.report.runs.rows import RtolOf, rows_of
from harness.report.runs.snapshot import KeptCase, Snapshot, load_snapshot, psnr_db
from harness.report.runs.thresholds import Change
from harness.report.runs.times import doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kept run of a case.

    Attributes:
        run: Its id.
        error: The worst error of its outputs, in noise floors; of pictures the rms in
            levels; None where nothing was compared.
        words: The error with its unit; of pictures their PSNR.
        latency: Median of its benchmark, with the suite's threads where there are
            several; None without one.
        metric: The benchmark's name.
        doubt: Why that time is held against no other; empty if it is.
        size_bytes: Of what is deployed.
        machine: Whose times are held against each other.
        moved: What moved since the run in which something last did.
        since: What else changed since the run before: versions, files, the commit.

    """

    run: str
    error: float | None
    words: str
    latency: float | None
    metric: str
    doubt: str
    size_bytes: int
    machine: str = ""
    moved: tuple[Finding, ...] = ()
    since: tuple[str, ...] = ()


def kept_runs(runs: Path, case: str, newest: int) -> tuple[list[Snapshot], int]:
    """Return the newest runs that have a case, oldest first.

    Returns:
        The runs, and how many others are not readable by this version.

    Raises:
        SuiteError: No run has it.

    """
    found: list[Snapshot] = []
    unreadable, names = 0, set[str]()
    for path in sorted(runs.glob(f"*/{REPORT}"), reverse=True):
        if len(found) == newest:
            break
        try:
            one = load_snapshot(path, only=case)
        except ParityError:
            unreadable += 1
            continue
        names.update(one.names)
        if one.cases:
            found.append(one)
    if not found:
        near = few(sorted(name for name in names if case in name) or sorted(names))
        msg = f"no run under {runs} has a case {case!r}; they have {near or 'none'}."
        raise SuiteError(msg)
    return found[::-1], unreadable


def steps(case: str, runs: Iterable[Snapshot], rtol_of: RtolOf) -> Iterator[Step]:
    """Yield each run of a case, and what moved in it."""
    errors: Snapshot | None = None
    times: dict[str, Snapshot] = {}
    before: Snapshot | None = None
    for run in runs:
        found: list[Finding] = []
        answers = bool(run.cases[case].rows)
        if before is not None and not (answers and before.cases[case].rows):
            found += _came_or_went(diff(before, run, rtol_of))
        if answers:
            moved = [] if errors is None else _moved(diff(errors, run, rtol_of))
            errors = _known(run, errors) if moved else _known(errors or run, run)
            found += moved
        sound = _without_doubtful_times(run)
        anchor = times.get(run.machine, sound)
        moved = _moved(diff(anchor, sound, rtol_of), of_machine=True)
        newest, other = (sound, anchor) if moved else (anchor, sound)
        times[run.machine] = _known(newest, other)
        found += moved
        step = _step(case, run)
        if found and before is not None:
            since = tuple(_since(diff(before, run, rtol_of), before, run))
            once = {(one.what, one.change): one for one in found}
            step = replace(step, moved=tuple(once.values()), since=since)
        before = run
        yield step


def _moved(found: Diff, *, of_machine: bool = False) -> list[Finding]:
    """Return what is another number; that a machine is another one moves nothing."""
    return [
        finding
        for finding in found.of(Change.WORSE, Change.BETTER, Change.INCOMPARABLE)
        if finding.of_machine is of_machine
        and not (of_machine and finding.change is Change.INCOMPARABLE)
    ]


def _without_doubtful_times(run: Snapshot) -> Snapshot:
    sound = tuple(entry for entry in run.benchmarks if not doubt(entry))
    return replace(run, benchmarks=sound)


def _came_or_went(found: Diff) -> list[Finding]:
    """Return what two runs tell of each other of which one has no answer."""
    return [
        finding
        for finding in found.findings
        if finding.change is not Change.SAME and not finding.of_machine
    ]


def _known(one: Snapshot, other: Snapshot | None) -> Snapshot:
    """Return a run of one case, with what it lacks and another one has."""
    if other is None:
        return one
    ((name, case),) = one.cases.items()
    there = other.cases[name]
    has = {row.what for row in case.rows}
    more = tuple(row for row in there.rows if row.what not in has)
    checks = {row.what: there for row in more} | dict.fromkeys(has, case)
    metrics = {entry.metric for entry in one.benchmarks}
    filled = replace(
        case,
        outcomes={what: of.outcomes[what] for what, of in checks.items()},
        reasons={what: of.reasons[what] for what, of in checks.items()},
        inputs={**there.inputs, **case.inputs},
        coverage=there.coverage if case.coverage is None else case.coverage,
        rows=(*case.rows, *more),
    )
    times = (entry for entry in other.benchmarks if entry.metric not in metrics)
    return replace(one, cases={name: filled}, benchmarks=(*one.benchmarks, *times))


def _since(found: Diff, before: Snapshot, after: Snapshot) -> Iterator[str]:
    for tool, (one, two) in found.versions.items():
        yield f"{tool} {one} → {two}"
    yield from found.files
    one, two = (str(run.environment.get("commit", "")) for run in (before, after))
    if one != two:
        yield f"commit {one[:8] or 'none'} → {two[:8] or 'none'}"
    if found.machines:
        yield found.machines


def _step(case: str, run: Snapshot) -> Step:
    kept = run.cases[case]
    error, words = _error(kept)
    times = sorted(
        (entry for entry in run.benchmarks if entry.case == case),
        # A number of threads that is not the suite's stands in the name.
        key=lambda entry: len(entry.metric),
    )
    return Step(
        run=run.id,
        error=error,
        words=words,
        latency=statistics.median(times[0].runs) if times else None,
        metric=times[0].metric if times else "",
        doubt=doubt(times[0]) if times else "",
        size_bytes=kept.size_bytes,
        machine=run.machine,
    )


def _error(case: KeptCase) -> tuple[float | None, str]:
    """Return the worst error of what a case puts out, and that in words."""
    pictures = [_finite(row.rms) for row in rows_of(case, IMAGE)]
    if pictures:
        return max(pictures), f"{psnr_db(max(pictures)):.1f} dB"
    for what in (OUTPUTS, LAYERS):
        floors = [row.floors for row in rows_of(case, what)]
        known = [_finite(value) for value in floors if value is not None]
        if known:
            return max(known), in_floors(max(known))
    return None, "not compared"


def _finite(error: float) -> float:
    """Return an error that can be compared: one that is not finite is the largest."""
    return math.inf if math.isnan(error) else error
