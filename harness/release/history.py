"""One case over the kept runs: its error, time and size, and where they moved.

Each run is held against the one in which something last moved, so that a drift too slow
for any two neighbours shows as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.e2e.plan import IMAGE
from harness.errors import ParityError, SuiteError
from harness.release.diff import Diff, Finding, diff
from harness.release.noise import Change
from harness.release.rows import RtolOf, rows_of
from harness.release.snapshot import KeptCase, Snapshot, load_snapshot, psnr_db
from harness.report.record import LAYERS, OUTPUTS
from harness.report.run_folder import REPORT
from harness.report.text import few, in_floors


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kept run of a case.

    Attributes:
        run: Its id.
        error: The worst error of its outputs, in noise floors; of pictures the rms in
            levels; None where nothing was compared.
        words: The error with its unit; of pictures their PSNR.
        latency: Median of the first benchmark; None without one.
        metric: The benchmark's name.
        size_bytes: Of what is deployed.
        moved: What moved since the run in which something last did.
        since: What else changed since the run before: versions, files, the commit.

    """

    run: str
    error: float | None
    words: str
    latency: float | None
    metric: str
    size_bytes: int
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
    anchor: Snapshot | None = None
    before: Snapshot | None = None
    for run in runs:
        step = _step(case, run)
        if anchor is None or before is None:
            anchor = run
        else:
            moved = _moved(diff(anchor, run, rtol_of))
            if moved:
                anchor = run
                since = tuple(_since(diff(before, run, rtol_of), before, run))
                step = replace(step, moved=moved, since=since)
        before = run
        yield step


def _moved(found: Diff) -> tuple[Finding, ...]:
    # That a machine is another one moves nothing by itself.
    return tuple(
        finding
        for finding in found.of(Change.WORSE, Change.BETTER, Change.INCOMPARABLE)
        if finding.change is not Change.INCOMPARABLE or not finding.of_machine
    )


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
    times = [entry for entry in run.benchmarks if entry.case == case]
    return Step(
        run=run.id,
        error=error,
        words=words,
        latency=statistics.median(times[0].runs) if times else None,
        metric=times[0].metric if times else "",
        size_bytes=kept.size_bytes,
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
