"""The folder of one run: a record for each case, and one JSON file at the end."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock

from harness.core.errors import SpecError, SuiteError
from harness.core.received import DamagedError, read_json
from harness.core.record import (
    CaseRecord,
    Key,
    load_record,
    save_record,
)
from harness.core.record_form import Name, Seconds
from harness.core.whole_file import write_whole

SCHEMA = 4
REPORT = "report.json"
SUMMARY = "summary.md"
PICTURES = "pictures"
"""The subfolder for the pictures that end-to-end cases drew."""

CASES = "cases"
"""The subfolder with a record of each case, until the run has its report."""

_PART = ".part"

_LOOKED_AT = 20
"""Number of runs that are searched for times."""

_ID = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?")


class OneSuite(msgspec.Struct):
    """What is read quickly of a suite."""

    path: Name


class OneCase(msgspec.Struct):
    """What is read quickly of a case: the seconds of each stage."""

    suite: Name
    case: Name
    took_s: dict[Name, Seconds] | None = None


class Outline(msgspec.Struct):
    """What is read quickly of a report: its suites, and the times of its cases."""

    schema: int
    suites: list[OneSuite] = []
    cases: list[OneCase] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The folder with one run's records; the processes of that run share it."""

    path: Path
    _read: dict[Path, CaseRecord] = field(default_factory=dict, compare=False)
    """Records by file, as far as this process has made or read them."""

    @classmethod
    def create(cls, runs: Path, now: datetime) -> RunFolder:
        """Make a new folder under `runs`; its name is the time.

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
        """Return the case's record; make it if no process of this run has.

        Raises:
            SuiteError: The folder cannot be written.

        """
        path = self._file(key)
        if path in self._read:
            return self._read[path]
        self._require_kept([path.parent] if self._read else [])
        lock = FileLock(path.with_suffix(".lock"))
        with self._writing():
            # xdist workers share a folder that the controller has named but not made.
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            if path.is_file():
                record = _load(path)
            else:
                record = replace(make(), suite=key[0])
                self._require_kept([path.parent])
                with self._writing():
                    save_record(record, path)
            return self._read.setdefault(path, record)
        finally:
            lock.release()

    def _file(self, key: Key) -> Path:
        suite, case = key
        of_suite = hashlib.sha256(suite.encode()).hexdigest()[:8]
        return self.path / CASES / f"{of_suite}+{case.replace('/', '+')}.json"

    def keep_part(self, record: CaseRecord) -> None:
        """Write what a case measured so far; its whole record takes the place of it.

        Nothing is written once the run has its report.

        Raises:
            SuiteError: The folder cannot be written.

        """
        path = self._file(record.key).with_suffix(_PART)
        if (self.path / REPORT).exists():
            return
        with self._writing():
            path.parent.mkdir(exist_ok=True)  # of a folder that is still there
            save_record(record, path)

    def _require_kept(self, paths: Iterable[Path]) -> None:
        """Refuse to go on where a file or folder that was there is gone.

        Raises:
            SuiteError: Somebody has removed the folder, or a file in it.

        """
        if not all(path.exists() for path in paths):
            msg = (
                f"{self.path} was removed while the run wrote to it, with what ended; "
                "run again, and leave it there."
            )
            raise SuiteError(msg)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _unwritable(self.path, error.strerror) from error

    def records(self) -> dict[Key, CaseRecord]:
        """Return the records made so far, and the parts of those that did not end.

        Raises:
            SuiteError: A record is damaged, or gone.

        """
        self._require_kept(self._read)
        folder = self.path / CASES
        names = {path.stem: path for path in sorted(folder.glob(f"*{_PART}"))}
        names |= {path.stem: path for path in sorted(folder.glob("*.json"))}
        paths = sorted(names.values())
        records = [self._read.get(path) or _load(path) for path in paths]
        return {record.key: record for record in records}

    def finish(
        self,
        about: Mapping[str, Any],
        verdicts: Iterable[Mapping[str, Any]],
        records: Iterable[CaseRecord],
    ) -> Path:
        """Write ``report.json`` and delete the files it was made from."""
        report = {"schema": SCHEMA, "id": self.id, **about}
        report["verdicts"] = list(verdicts)
        report["cases"] = [record.to_json() for record in records]
        path = self.path / REPORT
        write_whole(path, compact(report))
        shutil.rmtree(self.path / CASES, ignore_errors=True)
        return path

    def discard(self) -> None:
        """Remove the folder, in which nothing was recorded."""
        shutil.rmtree(self.path, ignore_errors=True)


def compact(report: Mapping[str, Any]) -> bytes:
    """Return a report's JSON without spaces, because it may have 100,000 rows."""
    return msgspec.json.encode(report, order="deterministic")


def _load(path: Path) -> CaseRecord:
    with refuse_damaged(path):
        return load_record(path)


def _unwritable(folder: Path, why: str | None) -> SuiteError:
    return SuiteError(f"{folder} cannot be written to ({why}); give another.")


class OtherVersionError(DamagedError):
    """Another version wrote a file; the message is a clause about the file."""


@contextmanager
def refuse_damaged(path: Path, fix: str = "run again") -> Iterator[None]:
    """Replace errors of reading a file by a sentence about the file, with a fix.

    Raises:
        SuiteError: The file cannot be read, or is damaged.

    """
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}); {fix}."
        raise SuiteError(msg) from error
    except OtherVersionError as error:
        msg = f"{path} {error}; use the version that wrote it, or {fix}."
        raise SuiteError(msg) from error
    except (DamagedError, SpecError) as error:
        msg = f"{path} is damaged: {str(error).rstrip('.')}; {fix}."
        raise SuiteError(msg) from error


def finished_runs(runs: Path) -> list[str]:
    """Return the names of the runs that have a report, oldest first."""
    found = (folder for folder in runs.glob("*") if (folder / REPORT).is_file())
    return [folder.name for folder in sorted(found, key=_age)]


def costs_of(runs: Path, cases: Iterable[Key]) -> dict[Key, float]:
    """Return the seconds that cases took in an earlier run, as far as it had them.

    It is the newest of the last runs that had the most of the cases. A case that failed
    there took 0 seconds. Only the times are read, so this is quick.
    """
    wanted, best = set(cases), dict[Key, float]()
    for name in reversed(finished_runs(runs)[-_LOOKED_AT:]):
        found = outline(runs / name / REPORT)
        costs_s = {
            key: sum((case.took_s or {}).values())
            for case in (found.cases if found else ())
            if (key := (case.suite, case.case)) in wanted
        }
        best = max(best, costs_s, key=len)  # the newer of two that have as many
        if len(best) == len(wanted):
            break
    return best


def outline(path: Path) -> Outline | None:
    """Return the outline of a report; None if it cannot be read."""
    try:
        return read_json(path, Outline)
    except (OSError, DamagedError):
        return None


def _age(folder: Path) -> tuple[str, float]:
    """Return a sort key: the time in the name, then the time of the report file."""
    named = _ID.fullmatch(folder.name)
    return (named[1] if named else "", (folder / REPORT).stat().st_mtime)
