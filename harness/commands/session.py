"""One run of one or more suites, from its options to its report.

`parity run` and the pytest plugin both use it, and neither decides anything: a session
refuses what cannot be judged, runs the cases, judges each, and writes the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any

from harness.commands.progress import Course
from harness.core.end_to_end import Tested
from harness.core.errors import ParityError, SpecError
from harness.core.record import Key
from harness.core.runtime import runtimes
from harness.core.settings import Settings
from harness.core.shown import written
from harness.core.text import Line
from harness.core.toml_file import did_you_mean
from harness.engine.run import Asked, Begin, Run, header, path_of, within_limit
from harness.engine.run_folder import RunFolder, costs_of
from harness.engine.worker_pool import Progress
from harness.judge.case import CaseVerdict
from harness.judge.tolerance import TIER_NAMES, parse_changes
from harness.report.finish import baseline_of, conclude
from harness.suite.shards import ShardCases, shard_of
from harness.suite.suite import Check, Suite


def names_in(text: str) -> tuple[str, ...]:
    """Return the names that an option lists, with commas between them."""
    return tuple(name for name in text.split(",") if name)


def refuse_unknown(
    option: str, kind: str, names: Iterable[str], there: Sequence[str]
) -> None:
    """Refuse a name that an option lists and that is not there.

    Raises:
        SpecError: A name is not there. The message has similar names.

    """
    for name in names:
        if name not in there:
            hint = did_you_mean(name, there)
            msg = f"{option}: there is no {kind} {name!r}; {hint}"
            raise SpecError(msg)


@contextmanager
def of_option(option: str) -> Iterator[None]:
    """Say in an error which option has the value that is wrong."""
    try:
        yield
    except ParityError as error:
        msg = f"{option}: {error}"
        raise SpecError(msg) from error


def settings_of(options: Mapping[str, Any], before: str = "--") -> Settings:
    """Return the settings that a run's options mean.

    The options have the names of `harness.core.run_options.OF_RUN`, as parameters of
    Python. `before` is what a user writes before such a name.

    Raises:
        SpecError: An option is invalid for every suite.

    """
    require = names_in(options["require"])
    tier, jobs = options["tier"], str(options["jobs"] or "0")
    refuse_unknown(f"{before}require", "backend", require, tuple(runtimes()))
    refuse_unknown(f"{before}tier", "tier", (tier,) if tier else (), TIER_NAMES)
    with of_option(f"{before}set"):
        parse_changes(options["changes"])
    with of_option(f"{before}shard"):
        _ = options["shard"] and shard_of(options["shard"])
    with of_option(f"{before}baseline"):  # before the run, and not after it
        _ = options["baseline"] and baseline_of(
            options["baseline"], Path(options["runs"])
        )
    if not jobs.isdecimal() or (options["jobs"] and int(jobs) < 1):
        msg = f"{before}jobs: takes a whole number from 1, got {jobs!r}."
        raise SpecError(msg)
    own = {name: options[name] for name in Settings.__slots__ if name in options}
    return Settings(**{**own, "require": require, "jobs": int(jobs)})


def shard_part(
    option: str, text: str, cases: Sequence[tuple[str, Tested]], runs: str
) -> ShardCases:
    """Return the shard of some cases, with their suites' paths, that a text means.

    Raises:
        SpecError: The cases cannot be divided into so many shards.

    """
    costs_s = costs_of(Path(runs), ((path, case.id) for path, case in cases))
    with of_option(option):
        return shard_of(text).part_of(cases, costs_s)


class RunSession(AbstractContextManager["RunSession"]):
    """A run of one or more suites; a context manager that ends its jobs.

    Args:
        settings: The user's options.
        on_progress: Receives the progress of the stages, from several threads.
        begin: Starts the cases, as of `Run`.

    Attributes:
        headers: For each suite's path, the lines that say what is going to run.
        course: How many of the cases have ended.

    """

    def __init__(
        self,
        settings: Settings,
        on_progress: Callable[[Progress], None] | None = None,
        begin: Begin | None = None,
    ) -> None:
        self.settings = settings
        self._begin = begin
        self.headers: dict[str, str] = {}
        self.course = Course([], {})
        self._on_progress = on_progress
        self._folder: RunFolder | None = None
        self._runs: dict[str, Run] = {}
        self._waiting: dict[str, list[Tested]] = {}
        self._starting = RLock()

    def __exit__(self, *_: object) -> None:
        """Close it, however the `with` ends."""
        self.close()

    def close(self) -> None:
        """Give up running cases, which leave nothing."""
        for run in self._runs.values():
            run.close()

    def folder(self) -> RunFolder:
        """Return the run's folder; the first call makes it."""
        if self._folder is None:
            runs = Path(self.settings.runs).absolute()
            self._folder = RunFolder.create(runs, datetime.now().astimezone())
        return self._folder

    def discard(self) -> None:
        """Remove the folder, if there is one; nothing ended."""
        if self._folder is not None:
            self._folder.discard()

    def of(self, suite: Suite) -> Run:
        """Return the part of the run that is of a suite; the first call makes it."""
        path = path_of(suite)
        if path not in self._runs:
            beside = next((run.executor for run in self._runs.values()), None)
            self._runs[path] = Run(
                suite,
                self.settings,
                self.folder,
                self._on_progress,
                beside,
                begin=self._begin,
            )
        return self._runs[path]

    def prepare(self, checks: Iterable[Check]) -> None:
        """Refuse checks that no tolerance judges, and count the cases.

        Raises:
            ParityError: A check cannot be judged, or a file beside a suite is wrong.

        """
        suites: dict[str, list[Check]] = {}
        for check in checks:
            suites.setdefault(path_of(check.suite), []).append(check)
        for path, own in suites.items():
            run = self.of(own[0].suite)
            run.judge.require((check.case, check.what) for check in own)
            cases = list({check.case.id: check.case for check in own}.values())
            self._waiting[path] = cases
            self.headers[path] = header(run.suite, cases, run.store)
        keys: list[Key] = [
            (path, case.id) for path, cases in self._waiting.items() for case in cases
        ]
        self.course = Course(keys, costs_of(Path(self.settings.runs), keys))

    def start(self) -> None:
        """Start the first suite's cases; each other suite's follow those before it."""
        with self._starting:
            path = next(iter(self._waiting), None)
            if path is not None:
                waiting = self._waiting.pop(path)
                self._runs[path].start(waiting, on_idle=self.start)

    def verdict(self, check: Check) -> CaseVerdict:
        """Run one check and judge it."""
        while path_of(check.suite) in self._waiting:
            self.start()
        return self.of(check.suite).check(check.case, check.what)

    def finish(
        self, asked: Iterable[Asked], argv: Sequence[str], part: ShardCases | None
    ) -> tuple[list[Line], int]:
        """Judge what ended and write the reports; return summary and exit code.

        `asked` are the checks that were requested and reached. The command `argv`
        repeats the run. `part` is its shard, if an option asked for one.

        Raises:
            ParityError: A file that describes the run is wrong, or a report cannot be
                written.

        """
        asked = set(asked)
        reached = {path for path, _, _ in asked}
        lines, code = conclude(
            self.folder(),
            [run.suite for path, run in self._runs.items() if path in reached],
            self.settings,
            asked=asked,
            argv=argv,
            about={} if part is None else {"shard": part},
        )
        stores = {run.store.root: run.store for run in self._runs.values()}
        for store in stores.values():
            lines += within_limit(store)
        return lines, code


def properties_of(verdict: CaseVerdict) -> list[tuple[str, str]]:
    """Return a verdict as properties for a JUnit file, each of one line."""
    found = [
        ("parity.outcome", verdict.outcome.value),
        ("parity.reason", verdict.reason),
        ("parity.usage", f"{verdict.usage:.3g}"),
    ]
    if verdict.picture:
        found.append(("parity.picture", verdict.picture))
    if verdict.own:
        found.append(("parity.own", verdict.own))
    if verdict.stored:
        found.append(("parity.stored", verdict.stored))
    if verdict.itself:
        found.append(("parity.itself", verdict.itself))
    if verdict.first is not None:
        row = verdict.first.row
        floors = row.comparison.floor_multiple
        found += [
            ("parity.first_divergence", row.place),
            ("parity.lead", verdict.lead),
            ("parity.operator", row.op),
            ("parity.source", row.source),
            ("parity.floors", "" if floors is None else f"{floors:.3g}"),
        ]
    return [(name, written(text, lines=False)) for name, text in found]
