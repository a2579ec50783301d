"""A finished run, or a baseline, as it is read: found by name, and typed."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

from harness.core.end_to_end import PAIRS
from harness.core.errors import SuiteError
from harness.core.received import DamagedError, decode, read_bytes
from harness.core.record import (
    Benchmark,
    CaseRecord,
    Key,
    Row,
    benchmarks_of,
    labels,
    suite_prefixes,
)
from harness.engine.report_form import BaselineForm, ReportForm, Version
from harness.engine.run_folder import (
    PICTURES,
    REPORT,
    SCHEMA,
    OtherVersionError,
    finished_runs,
    outline,
    refuse_damaged,
)


class _HasSchema(Protocol):
    @property
    def schema(self) -> int | None: ...


Form = TypeVar("Form", bound=_HasSchema)
_Name = TypeVar("_Name")
_Value = TypeVar("_Value")

LAST = "last"

_PICTURE_DEPTH = 3


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEnd:
    """The outcome of a check, known gaps considered, and the reason with numbers."""

    outcome: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """One case of a finished run: its record, and the end of each of its checks."""

    record: CaseRecord
    ends: Mapping[str, CheckEnd]

    @cached_property
    def rows(self) -> Mapping[str, Sequence[Row]]:
        """The rows of each check; a check without rows has none."""
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.record.rows:
            rows[row.what].append(row)
        return rows


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished run, or a baseline, read from its file.

    Attributes:
        id: Name of its folder, which is its time.
        suites: Digests of each suite's files, by the suite's absolute path.
        required: Backends that had to be available.
        ends: The end of each check by suite, case and check, in the run's order.
        records: Records by suite and case, in the run's order.
        benchmarks: Repeated time measurements, if there are any.
        about: Other facts about the run: environment, command, changes.
        path: Path of the file.

    """

    id: str
    suites: Mapping[str, Mapping[str, str]]
    required: tuple[str, ...]
    ends: Mapping[tuple[str, str, str], CheckEnd]
    records: Mapping[Key, CaseRecord]
    benchmarks: tuple[Benchmark, ...]
    about: Mapping[str, Any]
    path: Path

    @cached_property
    def names(self) -> dict[Key, str]:
        """The name of each case in summaries, by suite and case."""
        return labels(self.records.values())

    @cached_property
    def cases(self) -> dict[str, CaseReport]:
        """The cases by name, in the order of their names."""
        ends: defaultdict[Key, dict[str, CheckEnd]] = defaultdict(dict)
        for suite, case, what in sorted(self.ends):
            ends[suite, case][what] = self.ends[suite, case, what]
        return {
            name: CaseReport(record=self.records[key], ends=ends[key])
            for key, name in sorted(self.names.items(), key=lambda named: named[1])
        }

    @cached_property
    def checks(self) -> dict[str, CheckEnd]:
        """The end of each check by its name, as in ``unet/mnn/fp32/outputs``."""
        return {
            f"{name}/{what}": end
            for name, case in self.cases.items()
            for what, end in case.ends.items()
        }

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

    def with_suites(self, names: Mapping[str, str]) -> Report:
        """Return the report with another name in the place of each suite's path."""
        return replace(
            self,
            suites={names[path]: files for path, files in self.suites.items()},
            ends={
                (names[suite], case, what): end
                for (suite, case, what), end in self.ends.items()
            },
            records={
                (names[suite], case): replace(record, suite=names[suite])
                for (suite, case), record in self.records.items()
            },
        )

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
            benchmarks=tuple(
                benchmark for benchmark in self.benchmarks if benchmark.case in ids
            ),
        )


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
        benchmarks=benchmarks_of(form.benchmarks),
        about=form.about,
        path=path,
    )


def matched(
    one: Mapping[_Name, _Value], two: Mapping[_Name, _Value]
) -> Iterator[tuple[_Name, _Value | None, _Value | None]]:
    """Yield each key of two tables with its entries; None where one lacks it."""
    for name in {**one, **two}:
        yield name, one.get(name), two.get(name)


def differing(one: Mapping[str, object], two: Mapping[str, object]) -> list[str]:
    """Return the names whose values differ, or that only one mapping has."""
    return [name for name, was, is_ in matched(one, two) if was != is_]


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


def newest_with(runs: Path, key: Key) -> Path | None:
    """Return the report of the newest run that has a case, if there is one."""
    for name in reversed(finished_runs(runs)):
        found = outline(path := runs / name / REPORT)
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
    own = outline(path := runs / name / REPORT)
    if own is None or own.schema != SCHEMA:
        read_report(path)  # it says what is wrong
        return
    for earlier in reversed(finished[: finished.index(name)]):
        found = outline(path := runs / earlier / REPORT)
        if found is None or found.schema != SCHEMA:
            yield None
        elif {suite.path for suite in found.suites} == {
            suite.path for suite in own.suites
        }:
            yield path
