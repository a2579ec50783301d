"""What was timed, on disk: beside a run's report, and in it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.commands.bench.timing import Plan, Timing
from harness.core.environment import environment
from harness.core.errors import SuiteError
from harness.core.text import few
from harness.engine.run import path_of
from harness.engine.run_folder import (
    LAST,
    RunFolder,
    compact,
    find_run,
    read_report,
)
from harness.report.finish import files_of
from harness.suite.suite import Suite

TABLE, DETAIL = "bench.csv", "bench.json"
"""A row a subject, and every run."""

_COLUMNS = (
    *("subject", "threads", "median_ms", "quartile1_ms", "quartile3_ms", "runs"),
    *("load_ms", "first_run_ms", "memory_bytes", "peak_bytes", "size_bytes"),
    *("cores", "withheld", "device", "version", "failure"),
)


def keep(
    suite: Suite, runs: Path, name: str, timings: Sequence[Timing], plan: Plan
) -> tuple[Path, str]:
    """Write the timings; into a run of the same files on the same machine, if any.

    Args:
        suite: That was timed.
        runs: Folder of reports.
        name: Of the run to add to; empty for the newest, if it fits.
        timings: Of every subject.
        plan: How they were made.

    Returns:
        The folder, and why no run's report has the times now; empty where one has.

    Raises:
        SuiteError: The named run is of another suite or machine, or nothing can be
            written.

    """
    report, data, why = _fitting(suite, runs, name)
    if report is not None and (others := _other_files(data, timings)):
        report, why = None, f"run {data['id']} compared other files: {few(others)}"
    if report is None:
        folder = RunFolder.create(runs, datetime.now().astimezone()).path
    else:
        folder = report.parent
    try:
        write_tables(folder, suite, timings, plan)
        if report is not None:
            data["benchmarks"] = merged(data.get("benchmarks", ()), timings)
            _write(report, data)
    except OSError as error:
        msg = f"{folder} cannot be written to ({error.strerror}); give another --runs."
        raise SuiteError(msg) from error
    return folder, why


def keep_where(
    suite: Suite, runs: Path, name: str, found: Sequence[dict[str, Any]]
) -> tuple[Path | None, str]:
    """Write where time goes into a run of the same suite on the same machine.

    Args:
        suite: Whose cases were watched.
        runs: Folder of reports.
        name: Of the run to add to; empty for the newest, if it fits.
        found: Of each case.

    Returns:
        The folder, or why no run's report has it now.

    Raises:
        SuiteError: The named run is of another suite or machine, or cannot be written.

    """
    report, data, why = _fitting(suite, runs, name)
    if report is None:
        return None, why
    new = {one["case"] for one in found}
    kept = [one for one in data.get("where", ()) if one["case"] not in new]
    data["where"] = [*kept, *found]
    try:
        _write(report, data)
    except OSError as error:
        msg = f"{report} cannot be written to ({error.strerror})."
        raise SuiteError(msg) from error
    return report.parent, ""


def merged(there: Sequence[Any], timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """Return a report's benchmarks with new ones in the place of their like.

    Of what was timed and failed there is no row, an earlier one neither.
    """
    again = {(timing.subject, _metric(timing)) for timing in timings}
    kept = [one for one in there if (one["case"], one["metric"]) not in again]
    return [*kept, *benchmarks(timings)]


def benchmarks(timings: Sequence[Timing]) -> Iterator[dict[str, Any]]:
    """Yield what `parity gate` holds against another run's: less is better."""
    eager = {timing.component: timing for timing in timings if timing.is_eager}
    for timing in timings:
        if timing.rounds:
            beside = eager.get(timing.component)
            others = beside.medians_s if beside else ()
            yield {
                "case": timing.subject,
                "metric": _metric(timing),
                "runs": [round(run * 1e3, 6) for run in timing.runs_s],
                "over_pytorch": [
                    round(own / other, 6)
                    for own, other in zip(timing.medians_s, others, strict=False)
                ],
                "threads": timing.threads,
                "load_ms": round(timing.load_s * 1e3, 6),
                "first_run_ms": round(timing.first_s * 1e3, 6),
                "size_bytes": timing.size_bytes,
                "memory_bytes": timing.memory_bytes,
                "cores": round(timing.cores, 3),
                "withheld": _withheld(timing, beside),
            }


def _withheld(timing: Timing, beside: Timing | None) -> float | None:
    # A share of PyTorch's time is as good as either.
    both = [one.withheld for one in (timing, beside) if one is not None]
    known = [share for share in both if share is not None]
    return round(max(known), 4) if known else None


def _metric(timing: Timing) -> str:
    # Another number of threads is another question than the suite's.
    how = "" if timing.asked else f"_at_{timing.threads}_threads"
    return f"latency{how}_ms"


def write_tables(
    folder: Path, suite: Suite, timings: Sequence[Timing], plan: Plan
) -> None:
    """Write every subject as a line of a table, and every run as JSON.

    Lines of other subjects that lie there stay: a component may be timed after another.
    """
    new = {timing.subject for timing in timings}
    kept = [row for row in _rows(folder / TABLE) if row["subject"] not in new]
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows([*kept, *map(_row, timings)])
    detail = {
        "suite": suite.name,
        "environment": environment().to_json(),
        "plan": asdict(plan),
        "timings": [
            *(one for one in _timings(folder / DETAIL) if one["subject"] not in new),
            *(timing.to_json() for timing in timings),
        ],
    }
    _write(folder / DETAIL, detail)


def _timings(detail: Path) -> list[dict[str, Any]]:
    """Return the timings that an earlier call wrote."""
    if not detail.is_file():
        return []
    data: dict[str, Any] = json.loads(detail.read_text(encoding="utf-8"))
    return list(data["timings"])


def _rows(table: Path) -> list[dict[str, str]]:
    """Return the lines of an earlier table of the same columns."""
    if not table.is_file():
        return []
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row.keys() == set(_COLUMNS)]


def _row(timing: Timing) -> dict[str, object]:
    about = {
        "subject": timing.subject,
        "threads": timing.threads,
        "failure": timing.failure,
    }
    if not timing.rounds:
        return about
    low, high = timing.quartiles_s
    return about | {
        "median_ms": f"{timing.median_s * 1e3:.6g}",
        "quartile1_ms": f"{low * 1e3:.6g}",
        "quartile3_ms": f"{high * 1e3:.6g}",
        "runs": len(timing.runs_s),
        "load_ms": f"{timing.load_s * 1e3:.6g}",
        "first_run_ms": f"{timing.first_s * 1e3:.6g}",
        "memory_bytes": timing.memory_bytes,
        "peak_bytes": timing.peak_bytes,
        "size_bytes": timing.size_bytes,
        "cores": f"{timing.cores:.3g}",
        "withheld": "" if timing.withheld is None else f"{timing.withheld:.3g}",
        "device": timing.ran["device"],
        "version": timing.ran["version"],
    }


def _fitting(
    suite: Suite, runs: Path, name: str
) -> tuple[Path | None, dict[str, Any], str]:
    """Return the report to add to, and what it says; or none, and why not the newest.

    Raises:
        SuiteError: The run that was named is not it.

    """
    try:
        path = find_run(runs, name or LAST)
        data = read_report(path)
    except SuiteError:
        if name:
            raise
        return None, {}, f"there is no run under {runs}"
    files = {one["path"]: one["files"] for one in data["suites"]}
    there, here = data["environment"], environment().to_json()
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
    else:
        return path, data, ""
    if name:
        msg = f"run {data['id']} {why}; leave --run out for a folder of its own."
        raise SuiteError(msg)
    return None, {}, f"the newest run, {data['id']}, {why}"


def _other_files(data: Mapping[str, Any], timings: Sequence[Timing]) -> list[str]:
    """Return the subjects whose files are not those that a run compared."""
    compared = {
        case["case"]: {seat: one["digest"] for seat, one in case["artifacts"].items()}
        for case in data["cases"]
        if case["artifacts"]
    }
    return [
        timing.subject
        for timing in timings
        for seat, digest in timing.files.items()
        if compared.get(timing.subject, {}).get(seat, digest) != digest
    ]


def _write(path: Path, data: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(compact(data), encoding="utf-8")
    temporary.replace(path)
