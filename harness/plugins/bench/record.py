"""Write times to the disk: into a run's report, or into a file of their own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.core.environment import environment
from harness.core.errors import SuiteError
from harness.core.private import public_values
from harness.core.received import decode, read_json
from harness.core.text import few
from harness.core.whole_file import write_whole, writing
from harness.engine.finished_run import LAST, find_run, read_report
from harness.engine.report_form import ReportForm
from harness.engine.run import files_of, path_of
from harness.engine.run_folder import RunFolder, compact
from harness.plugins.bench.timing import Timing
from harness.suite.suite import Suite

DETAIL = "bench.json"
"""The file of times that belong to no run."""

METRIC = "latency_ms"


def keep(suite: Suite, runs: Path, timings: Sequence[Timing]) -> tuple[Path, str]:
    """Add times to the newest run, if it is of the same files here.

    The result is the file that has the times now, and the reason why it is no run's
    report; the reason is empty if it is one.

    Raises:
        ParityError: The folder cannot be written to.

    """
    try:
        report = find_run(runs, LAST)
        why = _unfit(read_report(report), suite, timings)
    except SuiteError:
        why = f"there is no run under {runs} that can be read"
    facts: dict[str, Any]
    if why:
        report = RunFolder.create(runs, datetime.now().astimezone()).path / DETAIL
        where = environment().to_json()
        facts = public_values({"suite": suite.name, "environment": where})
    with writing(report.parent, "give another with --runs"):
        if not why:
            # All other facts stay as they are, also those that this version ignores.
            facts = read_json(report, dict[str, msgspec.Raw])
        there = decode(bytes(facts.pop("benchmarks", b"[]")), list[Any])
        write_whole(report, compact(facts | {"benchmarks": merged(there, timings)}))
    return report, why


def merged(there: Sequence[Any], timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """Return a report's benchmarks, where new ones replace those of the same subject.

    A subject that failed has no row, and its earlier row is removed.
    """
    again = {(timing.subject.id, METRIC) for timing in timings}
    kept = [one for one in there if (one["case"], one["metric"]) not in again]
    return [*kept, *benchmarks(timings)]


def benchmarks(timings: Sequence[Timing]) -> Iterator[dict[str, Any]]:
    """Yield the report entries of all timings that did not fail.

    Each entry gives its time as a share of PyTorch eager's, if that was timed in the
    same rounds.
    """
    eager = {
        timing.subject.case.subject: timing
        for timing in timings
        if timing.subject.is_eager
    }
    for timing in timings:
        if timing.rounds:
            yield _entry(timing, eager.get(timing.subject.case.subject))


def _entry(timing: Timing, eager: Timing | None) -> dict[str, Any]:
    rounds, beside = timing.rounds, eager.medians_s if eager else ()
    where = timing.environment
    # A share of PyTorch's time is only as reliable as the two times.
    withheld = [_withheld(timing), _withheld(eager) if eager else None]
    known = [share for share in withheld if share is not None]
    return {
        "case": timing.subject.id,
        "metric": METRIC,
        "runs": [round(run * 1e3, 6) for one in rounds for run in one.runs_s],
        "rounds": [round(median * 1e3, 6) for median in timing.medians_s],
        "over_pytorch": [
            round(own / other, 6)
            for own, other in zip(timing.medians_s, beside, strict=False)
        ],
        "threads": timing.subject.device.threads,
        "load_ms": round(statistics.median(one.load_s for one in rounds) * 1e3, 6),
        # The slowest round, because a cache may serve the later ones.
        "first_run_ms": round(max(one.first_s for one in rounds) * 1e3, 6),
        "size_bytes": rounds[0].size_bytes,
        "memory_bytes": max(one.peak_bytes - one.base_bytes for one in rounds),
        "cores": round(statistics.median(one.cores for one in rounds), 3),
        "withheld": round(max(known), 4) if known else None,
        "withheld_rounds": [one.withheld for one in rounds],
        "ran": public_values(dict(rounds[0].ran)),
        # A run names its own machine, and not the nodes of a cluster.
        **({"node": timing.node, "machine": where.id} if where else {}),
    }


def _withheld(timing: Timing) -> float | None:
    known = [one.withheld for one in timing.rounds if one.withheld is not None]
    return statistics.median(known) if known else None


def _unfit(data: ReportForm, suite: Suite, timings: Sequence[Timing]) -> str:
    """Return why times do not belong to the run of a report; empty if they do."""
    files = {one["path"]: one["files"] for one in data.suites}
    there, here = data.environment, environment().to_json()
    versions = [
        f"{tool} {there['packages'].get(tool, 'none')} → {version}"
        for tool, version in here["packages"].items()
        if there["packages"].get(tool) != version
    ]
    if files != {path_of(suite): files_of(suite)}:
        why = "is of another suite, or of other files of it"
    elif there["id"] != here["id"]:
        why = "was made on another machine, whose times are never put beside these"
    elif versions:
        why = f"was made with other versions ({few(versions)})"
    elif others := _other_files(data, timings):
        why = f"compared other files: {few(others)}"
    else:
        return ""
    return f"the newest run, {data.id}, {why}"


def _other_files(data: ReportForm, timings: Sequence[Timing]) -> list[str]:
    """Return the subjects whose files differ from those that a run compared."""
    compared = {
        case.case: {role: one.get("digest", "") for role, one in case.artifacts.items()}
        for case in data.cases
        if case.artifacts
    }
    return [
        timing.subject.id
        for timing in timings
        for role, digest in timing.files.items()
        if compared.get(timing.subject.id, {}).get(role, digest) != digest
    ]
