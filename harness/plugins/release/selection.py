"""Select the runs and baselines that are compared, and by what they are judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.errors import ParityError
from harness.engine.finished_run import (
    LAST,
    CheckEnd,
    Report,
    earlier_runs,
    find_run,
    load_report,
)
from harness.judge.case import CaseVerdict
from harness.plugins.release.baseline import (
    SUFFIX,
    find_baseline,
    load_baseline,
    path_of,
)


def baselines_beside(runs: Path) -> Path:
    """Return the folder of baselines that belongs to a folder of runs."""
    return runs.parent / "baselines"


def load_either(runs: Path, name: str) -> Report:
    """Read a baseline by path or name, or a run by path or id.

    Raises:
        ParityError: There is no such baseline or run.

    """
    baselines = baselines_beside(runs)
    if name.endswith(SUFFIX) or path_of(baselines, name).is_file():
        return load_baseline(find_baseline(baselines, name)).report
    return load_report(runs, name)


def compared_names(
    names: Sequence[str], last: int | None, runs: Path
) -> tuple[Sequence[str], int]:
    """Return the runs and baselines that are compared, oldest first.

    A single name is compared with the last run; a single "last" is compared with the
    run before it. `last` is a number of the newest runs of the last run's suites. The
    number of runs that were skipped as not readable is returned, too.

    Raises:
        ParityError: There are not two to compare.

    """
    if bool(names) == bool(last):
        msg = "name runs or baselines to compare, or the number of runs with --last."
        raise ParityError(msg)
    if not last and list(names) != [LAST]:
        return (names if names[1:] else (*names, LAST)), 0
    found = [find_run(runs, LAST)]
    unreadable = 0
    for path in earlier_runs(runs, found[0].parent.name):
        if path is None:
            unreadable += 1
            continue
        found.append(path)
        if len(found) == (last or 2):
            break
    if not found[1:]:
        msg = (
            f"there is no run of its suite before {found[0].parent.name}; run again, "
            "then compare."
        )
        raise ParityError(msg)
    return [str(path) for path in found[::-1]], unreadable


def load_many(runs: Path, names: Sequence[str]) -> Iterator[Report]:
    """Read runs or baselines, each when it is needed.

    Raises:
        ParityError: A run or baseline is missing, or two are the same run.

    """
    seen: dict[tuple[str, str], str] = {}
    for name in names:
        run = load_either(runs, name)
        key = run.id, run.machine
        if key in seen:
            msg = (
                f"{seen[key]} and {name} are both run {run.id}, so it would tell "
                "nothing; `parity diff last` compares the last run with the one before."
            )
            raise ParityError(msg)
        seen[key] = name
        yield run


def with_verdicts(report: Report, verdicts: Iterable[CaseVerdict]) -> Report:
    """Return a run whose checks end as they were judged now, not when it ran."""
    ends = {
        (verdict.suite, verdict.case, verdict.what): CheckEnd(
            outcome=verdict.outcome.value, reason=verdict.reason
        )
        for verdict in verdicts
    }
    return replace(report, ends=ends)
