"""The folder of one run: a record a case while it runs, one JSON when it is over."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from filelock import FileLock

from harness.core.errors import SuiteError
from harness.core.record import CaseRecord, Key, load_record, save_record

SCHEMA = 3
REPORT = "report.json"
SUMMARY = "summary.md"
PAGE = "report.html"
LAST = "last"
PICTURES = "pictures"
"""Folder of what end-to-end cases drew, in the run's."""

_CASES = "cases"
_ID = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Where one run's records lie; shared by the processes of that run."""

    path: Path

    @classmethod
    def create(cls, runs: Path, now: datetime) -> RunFolder:
        """Make a new folder, named by the time, under `runs`.

        Raises:
            SuiteError: The folder cannot be written.

        """
        name = now.strftime("%Y-%m-%dT%H-%M-%S")
        for attempt in range(1000):
            path = runs / (f"{name}-{attempt}" if attempt else name)
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if not runs.is_dir():
                    raise _unwritable(runs, "it is no folder") from None
            except OSError as error:
                raise _unwritable(runs, error.strerror) from error
            else:
                return cls(path=path)
        msg = f"{runs} already has a thousand runs of this second."
        raise SuiteError(msg)

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    def record_once(self, key: Key, make: Callable[[], CaseRecord]) -> CaseRecord:
        """Return the case's record, making it if no process of this run has.

        Raises:
            SuiteError: The folder cannot be written.

        """
        suite, case = key
        of_suite = hashlib.sha256(suite.encode()).hexdigest()[:8]
        path = self.path / _CASES / f"{of_suite}+{case.replace('/', '+')}.json"
        try:
            # xdist's workers share a folder that its controller has only named.
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error.strerror) from error
        if path.is_file():
            return load_record(path)
        with FileLock(path.with_suffix(".lock")):
            if path.is_file():
                return load_record(path)
            record = replace(make(), suite=suite)
            try:
                save_record(record, path)
            except OSError as error:
                path.with_suffix(".part").unlink(missing_ok=True)
                raise _unwritable(self.path, error.strerror) from error
            return record

    def records(self) -> dict[Key, CaseRecord]:
        """Return the records made so far."""
        paths = sorted((self.path / _CASES).glob("*.json"))
        return {record.key: record for record in map(load_record, paths)}

    def finish(
        self,
        about: Mapping[str, Any],
        verdicts: Iterable[Mapping[str, Any]],
        records: Iterable[CaseRecord],
    ) -> Path:
        """Write ``report.json`` and drop the pieces it was made of."""
        report = {"schema": SCHEMA, "id": self.id, **about}
        report["verdicts"] = list(verdicts)
        report["cases"] = [record.to_json() for record in records]
        text = compact(report)
        path = self.path / REPORT
        temporary = path.with_suffix(".part")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
        shutil.rmtree(self.path / _CASES, ignore_errors=True)
        return path

    def discard(self) -> None:
        """Remove the folder: nothing was recorded in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def compact(report: Mapping[str, Any]) -> str:
    """Return a report's JSON without a blank: it may have 100,000 rows."""
    return json.dumps(report, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _unwritable(folder: Path, why: str | None) -> SuiteError:
    return SuiteError(f"{folder} cannot be written to ({why}); give another.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A finished run, read back.

    Attributes:
        id: Name of its folder.
        suites: Each suite's path, in full, to the digests that its files had.
        required: Backends that could not be skipped.
        asked: Suite, case and check: what was asked for.
        records: By suite and case, in the run's order.
        about: What else the run said of itself: environment, command, changes.
        path: Of the file.

    """

    id: str
    suites: Mapping[str, Mapping[str, str]]
    required: tuple[str, ...]
    asked: tuple[tuple[str, str, str], ...]
    records: Mapping[Key, CaseRecord]
    about: Mapping[str, Any]
    path: Path


def load_report(runs: Path, name: str) -> Report:
    """Read a run by id, by path, or the newest as ``last``.

    Raises:
        SuiteError: There is no such run, or another version wrote it.

    """
    path = find_run(runs, name)
    data = read_report(path)
    try:
        return _report(data, path)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def read_report(path: Path) -> dict[str, Any]:
    """Return a report's JSON, for who needs less of it than every comparison.

    Raises:
        SuiteError: It cannot be read, or another version wrote it.

    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read as a report: {error}."
        raise SuiteError(msg) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        msg = (
            f"{path} has schema {schema}, this version reads {SCHEMA}; "
            "use the version that wrote it, or run again."
        )
        raise SuiteError(msg)
    return cast("dict[str, Any]", data)


def damaged(path: Path, error: Exception, mend: str = "run again") -> SuiteError:
    """Return the error that a file is not what its schema says."""
    what = f"{type(error).__name__}: {error}"
    return SuiteError(f"{path} is damaged ({what}); {mend}.")


def _report(data: Mapping[str, Any], path: Path) -> Report:
    records = [CaseRecord.from_json(case) for case in data["cases"]]
    asked = []
    for verdict in data["verdicts"]:
        case, _, what = verdict["id"].rpartition("/")
        asked.append((verdict["suite"], case, what))
    return Report(
        id=data["id"],
        suites={suite["path"]: suite["files"] for suite in data["suites"]},
        required=tuple(data["required"]),
        asked=tuple(asked),
        records={record.key: record for record in records},
        about={name: data[name] for name in data.keys() - {"verdicts", "cases"}},
        path=path,
    )


def finished_runs(runs: Path) -> list[str]:
    """Return the names of the runs that have a report, oldest first."""
    found = (folder for folder in runs.glob("*") if (folder / REPORT).is_file())
    return [folder.name for folder in sorted(found, key=_age)]


def find_run(runs: Path, name: str) -> Path:
    """Return the path of a run's report.

    Raises:
        SuiteError: There is none of that name.

    """
    named = Path(name)
    if named.is_file():
        return named
    for folder in (named, runs / name):
        if (folder / REPORT).is_file():
            return folder / REPORT
    finished = finished_runs(runs)
    if name == LAST and finished:
        return runs / finished[-1] / REPORT
    newest = ", ".join(finished[-3:]) or "none"
    msg = (
        f"There is no run {name!r} under {runs}; the newest are {newest}. "
        "`parity run` makes one."
    )
    raise SuiteError(msg)


def run_before(runs: Path, name: str) -> Path | None:
    """Return the report of the newest run of the same suites that came before a run.

    None where there is no such run, or `name` is none under `runs`.
    """
    finished = finished_runs(runs)
    if name not in finished:
        return None
    suites = _suites(runs / name / REPORT)
    for earlier in reversed(finished[: finished.index(name)]):
        path = runs / earlier / REPORT
        with suppress(SuiteError):  # another version wrote it
            if _suites(path) == suites:
                return path
    return None


def _suites(path: Path) -> set[str]:
    try:
        return {suite["path"] for suite in read_report(path)["suites"]}
    except (KeyError, TypeError) as error:
        raise damaged(path, error) from error


def _age(folder: Path) -> tuple[str, float]:
    """Sort by the second in the name; within one, by when the report was written."""
    named = _ID.fullmatch(folder.name)
    return (named[1] if named else "", (folder / REPORT).stat().st_mtime)
