"""The folder of one run: a record a case while it runs, one JSON when it is over."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from harness.errors import SuiteError
from harness.report.record import CaseRecord, load_record, save_record

SCHEMA = 1
REPORT = "report.json"
SUMMARY = "summary.md"
LAST = "last"
_CASES = "cases"
_ID = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:-\d+)?")


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
                (path / _CASES).mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                msg = f"{runs} cannot be written to ({error.strerror}); give another."
                raise SuiteError(msg) from error
            return cls(path=path)
        msg = f"{runs} already has a thousand runs of this second."
        raise SuiteError(msg)

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    def record_once(
        self, case: str, make: Callable[[], CaseRecord]
    ) -> CaseRecord:
        """Return the case's record, making it if no process of this run has."""
        path = self.path / _CASES / f"{case.replace('/', '+')}.json"
        if path.is_file():
            return load_record(path)
        with FileLock(path.with_suffix(".lock")):
            if path.is_file():
                return load_record(path)
            record = make()
            save_record(record, path)
            return record

    def records(self) -> Iterator[CaseRecord]:
        """Yield the records made so far, by case id."""
        for path in sorted((self.path / _CASES).glob("*.json")):
            yield load_record(path)

    def finish(self, about: Mapping[str, Any], verdicts: list[dict[str, Any]]) -> Path:
        """Write ``report.json`` and drop the pieces it was made of."""
        records = [record.to_json() for record in self.records()]
        report = {"schema": SCHEMA, "id": self.id, **about}
        report |= {"verdicts": verdicts, "cases": records}
        path = self.path / REPORT
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(report, sort_keys=True), encoding="utf-8")
        temporary.replace(path)
        shutil.rmtree(self.path / _CASES, ignore_errors=True)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A finished run, read back."""

    id: str
    about: Mapping[str, Any]
    records: Mapping[str, CaseRecord]


def load_report(runs: Path, name: str) -> Report:
    """Read a run by id, by path, or the newest as ``last``.

    Raises:
        SuiteError: There is no such run, or another version wrote it.

    """
    path = find_run(runs, name)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read as a report: {error}."
        raise SuiteError(msg) from error
    if data.get("schema") != SCHEMA:
        msg = (
            f"{path} has schema {data.get('schema')}, this version reads {SCHEMA}; "
            "use the version that wrote it, or run again."
        )
        raise SuiteError(msg)
    records = [CaseRecord.from_json(case) for case in data.pop("cases")]
    return Report(
        id=data["id"], about=data, records={record.case: record for record in records}
    )


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
    finished = sorted(
        folder.name
        for folder in runs.glob("*")
        if _ID.fullmatch(folder.name) and (folder / REPORT).is_file()
    )
    if name == LAST and finished:
        return runs / finished[-1] / REPORT
    newest = ", ".join(finished[-3:]) or "none"
    msg = (
        f"There is no run {name!r} under {runs}; the newest are {newest}. "
        "`parity run` makes one."
    )
    raise SuiteError(msg)
