"""The folder of one run: a record for each case, and one JSON file at the end."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

import msgspec
from filelock import FileLock

from harness.core.end_to_end import PAIRS
from harness.core.errors import SpecError, SuiteError
from harness.core.received import DamagedError, decode, read_bytes, read_json
from harness.core.record import (
    Benchmark,
    CaseRecord,
    Key,
    benchmarks_of,
    labels,
    load_record,
    save_record,
    suite_prefixes,
)
from harness.core.whole_file import write_whole
from harness.engine.report_form import BaselineForm, Outline, ReportForm, Version


class _HasSchema(Protocol):
    @property
    def schema(self) -> int | None: ...


Form = TypeVar("Form", bound=_HasSchema)

SCHEMA = 4
REPORT = "report.json"
SUMMARY = "summary.md"
PAGE = "report.html"
LAST = "last"
PICTURES = "pictures"
"""The subfolder for the pictures that end-to-end cases drew."""

_PICTURE_DEPTH = 3
_CASES = "cases"

_LOOKED_AT = 20
"""Number of runs that are searched for times."""

_ID = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?")


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
        suite, case = key
        of_suite = hashlib.sha256(suite.encode()).hexdigest()[:8]
        path = self.path / _CASES / f"{of_suite}+{case.replace('/', '+')}.json"
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
                record = replace(make(), suite=suite)
                self._require_kept([path.parent])
                with self._writing():
                    save_record(record, path)
            return self._read.setdefault(path, record)
        finally:
            lock.release()

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
        """Return the records made so far.

        Raises:
            SuiteError: A record is damaged, or gone.

        """
        self._require_kept(self._read)
        paths = sorted((self.path / _CASES).glob("*.json"))
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
        shutil.rmtree(self.path / _CASES, ignore_errors=True)
        return path

    def discard(self) -> None:
        """Remove the folder, in which nothing was recorded."""
        shutil.rmtree(self.path, ignore_errors=True)


def picture_in(folder: Path, name: str) -> Path | None:
    """Return the path of a picture of the run in a folder; None if it has no such one.

    The folder may come from somebody else. So the name must be ``pictures/CASE/FILE``,
    and neither a folder nor the file may be a link that leads elsewhere.
    """
    parts = PurePosixPath(name).parts
    if parts[:1] != (PICTURES,) or len(parts) != _PICTURE_DEPTH or ".." in parts:
        return None
    path = folder
    for part in parts:
        path /= part
        if path.is_symlink():
            return None
    return path if path.is_file() else None


def copy_pictures(record: CaseRecord, one: Path, other: Path) -> None:
    """Copy the pictures that a record names from the folder of a run to another.

    Raises:
        OSError: A picture cannot be read or written.

    """
    told = record.pipeline or {}
    pairs: Mapping[str, Any] = told.get(PAIRS) or {}
    for name in (*told.get("pictures", ()), *pairs.get("pictures", ())):
        if path := picture_in(one, name):
            (other / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, other / name)


def compact(report: Mapping[str, Any]) -> bytes:
    """Return a report's JSON without spaces, because it may have 100,000 rows."""
    return msgspec.json.encode(report, order="deterministic")


def _load(path: Path) -> CaseRecord:
    with refuse_damaged(path):
        return load_record(path)


def _unwritable(folder: Path, why: str | None) -> SuiteError:
    return SuiteError(f"{folder} cannot be written to ({why}); give another.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEnd:
    """The outcome of a check, known gaps considered, and the reason with numbers."""

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """One case of a finished run: its record, and the end of each of its checks."""

    record: CaseRecord
    ends: Mapping[str, CheckEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A finished run, or a baseline, read from its file.

    Attributes:
        id: Name of its folder, which is its time.
        suites: Digests of each suite's files, by the suite's absolute path.
        required: Backends that had to be available.
        ends: The end of each check by suite, case and check, in the run's order.
        records: Records by suite and case, in the run's order.
        names: The name of each case in summaries, by suite and case.
        benchmarks: Repeated time measurements, if there are any.
        about: Other facts about the run: environment, command, changes.
        path: Path of the file.

    """

    id: str
    suites: Mapping[str, Mapping[str, str]]
    required: tuple[str, ...]
    ends: Mapping[tuple[str, str, str], CheckEnd]
    records: Mapping[Key, CaseRecord]
    names: Mapping[Key, str]
    benchmarks: tuple[Benchmark, ...]
    about: Mapping[str, Any]
    path: Path

    @property
    def cases(self) -> dict[str, CaseReport]:
        """The cases by name, in the order of their names."""
        ends: dict[Key, dict[str, CheckEnd]] = {}
        for (suite, case, what), end in sorted(
            self.ends.items(), key=lambda one: one[0]
        ):
            ends.setdefault((suite, case), {})[what] = end
        found = {
            self.names[key]: CaseReport(record=record, ends=ends.get(key, {}))
            for key, record in self.records.items()
        }
        return dict(sorted(found.items()))

    @property
    def name(self) -> str:
        """The name of its suite's folder, or of all its suites' folders."""
        return "+".join(sorted({Path(path).parent.name for path in self.suites}))

    @property
    def environment(self) -> Mapping[str, Any]:
        """The machine, the versions and the commit."""
        environment: Mapping[str, Any] = self.about["environment"]
        return environment

    @property
    def machine(self) -> str:
        """The machine's id; times are compared only on the same machine."""
        return str(self.environment["id"])

    @property
    def cpu(self) -> str:
        """The processor's name, with its family and model."""
        return str(self.environment["cpu"])

    @property
    def versions(self) -> dict[str, str]:
        """The version of everything that can change a number."""
        return {"python": self.environment["python"], **self.environment["packages"]}

    @property
    def files(self) -> dict[str, str]:
        """Digests of the files that describe the suites, by name."""
        folders = {
            suite: prefix.removesuffix(":")
            for suite, prefix in suite_prefixes(self.suites).items()
        }
        return {
            f"{folders[suite]}/{name}" if folders[suite] else name: digest
            for suite, files in self.suites.items()
            for name, digest in files.items()
        }

    def only(self, keep: Callable[[str, str], bool]) -> Report:
        """Return the report with the checks that are kept, and the cases that have any.

        `keep` gets a case's name and a check.
        """
        ends = {
            (suite, case, what): end
            for (suite, case, what), end in self.ends.items()
            if keep(self.names[suite, case], what)
        }
        left = {(suite, case) for suite, case, _ in ends}
        ids = {case for _, case in left}
        return replace(
            self,
            ends=ends,
            records={key: one for key, one in self.records.items() if key in left},
            benchmarks=tuple(one for one in self.benchmarks if one.case in ids),
        )


class OtherVersionError(DamagedError):
    """Another version wrote a file; the message is a clause about the file."""


def load_report(runs: Path, name: str) -> Report:
    """Read a run by id or by path; ``last`` is the newest.

    Raises:
        SuiteError: There is no such run, it is damaged, or another version wrote it.

    """
    path = find_run(runs, name)
    return of_form(read_report(path), path)


def read_report(path: Path) -> ReportForm:
    """Return the JSON form of a report.

    Raises:
        SuiteError: The report cannot be read, or another version wrote it.

    """
    with refuse_damaged(path):
        content = read_bytes(path)
        return decoded(content, ReportForm, SCHEMA)


def decoded(content: bytes, kind: type[Form], schema: int) -> Form:
    """Return the JSON of a report or a baseline in its form.

    Raises:
        DamagedError: It has another form.
        OtherVersionError: Another version wrote it.

    """
    try:
        form = decode(content, kind, words=True)
    except DamagedError:
        _require(schema, decode(content, Version))
        raise
    _require(schema, form)
    return form


def _require(schema: int, there: _HasSchema) -> None:
    if there.schema != schema:
        msg = f"has schema {there.schema}, this version reads {schema}"
        raise OtherVersionError(msg)


def of_form(form: ReportForm | BaselineForm, path: Path) -> Report:
    """Return the report that has this JSON form; `path` is its file."""
    records = [CaseRecord.of(case) for case in form.cases]
    ends = {}
    for verdict in form.verdicts:
        case, _, what = verdict.id.rpartition("/")
        ends[verdict.suite, case, what] = CheckEnd(
            outcome=verdict.outcome.value, reason=verdict.reason
        )
    return Report(
        id=form.id,
        suites={suite["path"]: suite["files"] for suite in form.suites},
        required=form.required,
        ends=ends,
        records={record.key: record for record in records},
        names=labels(records),
        benchmarks=benchmarks_of(form.benchmarks),
        about=form.about,
        path=path,
    )


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


def find_run(runs: Path, name: str) -> Path:
    """Return the path of a run's report.

    Raises:
        SuiteError: There is no run of that name.

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


def costs_of(runs: Path, cases: Iterable[Key]) -> dict[Key, float]:
    """Return the seconds that cases took in an earlier run, as far as it had them.

    It is the newest of the last runs that had the most of the cases. A case that failed
    there took 0 seconds. Only the times are read, so this is quick.
    """
    wanted, best = set(cases), dict[Key, float]()
    for name in reversed(finished_runs(runs)[-_LOOKED_AT:]):
        found = _outline(runs / name / REPORT)
        costs_s = {
            key: sum((case.took_s or {}).values())
            for case in (found.cases if found else ())
            if (key := (case.suite, case.case)) in wanted
        }
        best = max(best, costs_s, key=len)  # the newer of two that have as many
        if len(best) == len(wanted):
            break
    return best


def _outline(path: Path) -> Outline | None:
    """Return the outline of a report, or None if it cannot be read."""
    try:
        return read_json(path, Outline)
    except (OSError, DamagedError):
        return None


def newest_with(runs: Path, key: Key) -> Path | None:
    """Return the report of the newest run that has a case, if there is one."""
    for name in reversed(finished_runs(runs)):
        found = _outline(path := runs / name / REPORT)
        if found and key in {(case.suite, case.case) for case in found.cases}:
            return path
    return None


def earlier_runs(runs: Path, name: str) -> Iterator[Path | None]:
    """Yield the reports of the runs of the same suites before a run, newest first.

    None stands for a run that another version wrote. Nothing is yielded if `name` is no
    run under `runs`.

    Raises:
        SuiteError: The run's own report cannot be read, or another version wrote it.

    """
    finished = finished_runs(runs)
    if name not in finished:
        return
    own = _outline(path := runs / name / REPORT)
    if own is None or own.schema != SCHEMA:
        read_report(path)  # it says what is wrong
        return
    for earlier in reversed(finished[: finished.index(name)]):
        found = _outline(path := runs / earlier / REPORT)
        if found is None or found.schema != SCHEMA:
            yield None
        elif {one.path for one in found.suites} == {one.path for one in own.suites}:
            yield path


def _age(folder: Path) -> tuple[str, float]:
    """Return a sort key: the time in the name, then the time of the report file."""
    named = _ID.fullmatch(folder.name)
    return (named[1] if named else "", (folder / REPORT).stat().st_mtime)
