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
from typing import Any, cast

import msgspec
from filelock import FileLock

from harness.core.errors import SpecError, SuiteError
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

SCHEMA = 4
REPORT = "report.json"
SUMMARY = "summary.md"
PAGE = "report.html"
LAST = "last"
PICTURES = "pictures"
"""The subfolder for the pictures that end-to-end cases drew."""

_CASES = "cases"
_ELSEWHERE = {"verdicts", "cases"}
_ABOUT = {"environment", "tier", "changes", "whole"}
"""Keys about the run that every report must have."""

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
        try:
            # xdist workers share a folder that the controller has named but not made.
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error.strerror) from error
        if path in self._read:
            return self._read[path]
        with FileLock(path.with_suffix(".lock")):
            if path.is_file():
                record = load_record(path)
            else:
                record = replace(make(), suite=suite)
                try:
                    save_record(record, path)
                except OSError as error:
                    raise _unwritable(self.path, error.strerror) from error
            return self._read.setdefault(path, record)

    def records(self) -> dict[Key, CaseRecord]:
        """Return the records made so far."""
        paths = sorted((self.path / _CASES).glob("*.json"))
        records = [self._read.get(path) or load_record(path) for path in paths]
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


def compact(report: Mapping[str, Any]) -> bytes:
    """Return a report's JSON without spaces, because it may have 100,000 rows."""
    return msgspec.json.encode(report, order="deterministic")


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


def load_report(runs: Path, name: str) -> Report:
    """Read a run by id or by path; ``last`` is the newest.

    Raises:
        SuiteError: There is no such run, or another version wrote it.

    """
    path = find_run(runs, name)
    data = read_report(path)
    with refuse_damaged(path):
        return report_of(data, path)


def read_report(path: Path) -> dict[str, Any]:
    """Return a report's JSON, for readers that need little of it.

    Raises:
        SuiteError: The report cannot be read, or another version wrote it.

    """
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
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


def report_of(data: Mapping[str, Any], path: Path, *, brief: bool = False) -> Report:
    """Return the report from the JSON of its file; a baseline's is `brief`."""
    records = [CaseRecord.from_json(case, brief=brief) for case in data["cases"]]
    ends = {}
    for verdict in data["verdicts"]:
        case, _, what = verdict["id"].rpartition("/")
        ends[verdict["suite"], case, what] = CheckEnd(
            outcome=verdict["outcome"], reason=verdict["reason"]
        )
    return Report(
        id=data["id"],
        suites={suite["path"]: suite["files"] for suite in data["suites"]},
        required=tuple(data["required"]),
        ends=ends,
        records={record.key: record for record in records},
        names=labels(records),
        benchmarks=benchmarks_of(data.get("benchmarks", ())),
        about={name: data[name] for name in (data.keys() - _ELSEWHERE) | _ABOUT},
        path=path,
    )


@contextmanager
def refuse_damaged(path: Path, fix: str = "run again") -> Iterator[None]:
    """Replace errors of damaged data by a message about the file, with a fix.

    Raises:
        SuiteError: The data in the file is damaged.

    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, SpecError) as error:
        detail = f"{type(error).__name__}: {error}"
        msg = f"{path} is damaged ({detail}); {fix}."
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


class _Suite(msgspec.Struct):
    path: str


class _Case(msgspec.Struct):
    suite: str
    case: str
    took_s: dict[str, float] | None = None  # by stage


class _Outline(msgspec.Struct):
    """What is read quickly of a report: its suites, and the times of its cases."""

    schema: int
    suites: list[_Suite] = []
    cases: list[_Case] = []


def _outline(path: Path) -> _Outline | None:
    """Return the outline of a report, or None if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Outline)
    except (OSError, ValueError, RecursionError):
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
