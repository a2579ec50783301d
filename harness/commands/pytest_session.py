"""The parity session of one pytest process, which does the work of the plugin.

The plugin imports this module when the first parity test runs. Under pytest-xdist each
worker has a session, all on the same run folder. The controller has one that judges
and reports at the end.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO, cast

import pytest

from harness.commands.progress import Course, ProgressLines, moves
from harness.core.end_to_end import MIXED, Tested
from harness.core.errors import ParityError, SpecError
from harness.core.outcome import CANNOT_TELL
from harness.core.private import from_tilde
from harness.core.record import WHATS, Key
from harness.core.runtime import runtimes
from harness.core.settings import Settings
from harness.core.shown import sentence, shown, written
from harness.core.stopping import stopped_by_signals
from harness.core.text import Line, case_line, one_line, screen, wrapped
from harness.core.toml_file import did_you_mean
from harness.engine.run import Asked, Run, header, path_of, within_limit
from harness.engine.run_folder import RunFolder, costs_of
from harness.engine.shared import is_url
from harness.judge.case import CaseVerdict, skipped
from harness.judge.run import pytest_status
from harness.judge.tolerance import TIER_NAMES, parse_changes
from harness.report.finish import baseline_of, conclude
from harness.suite.shards import ShardCases, shard_of
from harness.suite.suite import Check, Suite, load_suite

_STOP_TIMER = "pytest_timeout_cancel_timer"
"""The hook by which pytest-timeout, where it is installed, takes its limit back."""

_PARTS = {"component": 0, "backend": 1, "variant": 2}
_TONES = {"good": {"green": True}, "bad": {"red": True}, "quiet": {"light": True}}


class ParitySession:
    """The suites, runs and verdicts of one pytest process."""

    def __init__(self, config: pytest.Config, run_name: str) -> None:
        self._config = config
        self._settings = settings_of(config)
        self._worker: Mapping[str, str] | None = getattr(config, "workerinput", None)
        self._name = self._worker["parity_run"] if self._worker else run_name
        self._distributed = bool(self._name)
        self._folder: RunFolder | None = None
        self._runs: dict[str, Run] = {}
        self._asked: dict[Asked, None] = {}
        self._untold: dict[Key, dict[str, Mapping[str, str]]] = {}
        self._lines: list[Line] = []
        self._waiting: dict[str, list[Tested]] = {}
        self._headers: dict[str, str] = {}
        self._starting = threading.RLock()
        self._writer = config.get_terminal_writer()
        self._stream, live = self._terminal()
        self._progress = ProgressLines(
            self._stream, live=live, room=self._room, lead=self._lead
        )
        self._progress.lasting = isinstance(self._stream, TextIOWrapper)
        self._led = False

    def _terminal(self) -> tuple[TextIO, bool]:
        """Return a stream that works while pytest captures output, if there is one."""
        with suppress(OSError, ValueError):  # a stdout of no file
            if self._worker is None and not self._distributed:
                self._writer.flush()
                stream = os.fdopen(
                    os.dup(sys.stdout.fileno()), "w", encoding="utf-8", errors="replace"
                )
                return stream, moves(sys.stdout)
        return cast("TextIO", self._writer), False

    def _room(self) -> int:
        return self._writer.fullwidth - self._writer.width_of_current_line

    def _lead(self) -> str:
        """Return a line feed if pytest has begun a line, which it does not end."""
        led, self._led = self._led, self._writer.width_of_current_line > 0
        return "\n" if self._led and not led else ""

    def _open_folder(self) -> RunFolder:
        """Return the run's folder; the first call makes it."""
        if self._folder is None:
            runs = Path(self._settings.runs)
            if self._name:
                self._folder = RunFolder(path=runs / self._name)
            else:
                self._folder = RunFolder.create(runs, datetime.now().astimezone())
        return self._folder

    def start(self, items: Sequence[pytest.Item]) -> None:
        """Start the first suite's cases; each other suite's follow those before it."""
        stopped = ExitStack()  # until the report is written, after `close`
        stopped.enter_context(stopped_by_signals())
        self._config.add_cleanup(stopped.close)
        suites: dict[str, list[Check]] = {}
        for item in items:
            if item.get_closest_marker("skip"):
                continue  # such as every other test than benchmarks
            if check := check_of(item):
                suites.setdefault(path_of(check.suite), []).append(check)
        for path, checks in suites.items():
            try:
                run = self._run(checks[0].suite)
                run.judge.require((check.case, check.what) for check in checks)
            except ParityError as error:
                pytest.exit(sentence("parity", error), returncode=CANNOT_TELL)
            cases = list({check.case.id: check.case for check in checks}.values())
            self._waiting[path] = cases
            self._headers[path] = header(run.suite, cases, run.store)
        keys = [
            (path, case.id) for path, cases in self._waiting.items() for case in cases
        ]
        costs_s = costs_of(Path(self._settings.runs), keys)
        self._progress.course = Course(keys, costs_s)
        self._tell_header(next(iter(suites), ""))
        self._start_next()

    def _start_next(self) -> None:
        """Start the cases of the first suite that waits, if one does."""
        with self._starting:
            path = next(iter(self._waiting), None)
            if path is not None:
                waiting = self._waiting.pop(path)
                self._runs[path].start(waiting, on_idle=self._start_next)

    def _tell_header(self, path: str) -> None:
        """Print what runs of a suite, before its first case."""
        if text := self._headers.pop(path, ""):
            self._writer.line(shown(text, lines=True))
            self._writer.flush()

    def require(self, check: object, node: pytest.Item) -> str:
        """Run one check and record its verdict on the test; return the failure."""
        __tracebackhide__ = True
        if not isinstance(check, Check):
            msg = "parity.require takes a Check, one of suite.checks()."
            raise TypeError(msg)
        # The cases have limits of their own. A test waits for work that other tests
        # share, so a limit of pytest-timeout would end what is not this test's.
        if hasattr(node.ihook, _STOP_TIMER):
            getattr(node.ihook, _STOP_TIMER)(item=node)
        told = node.user_properties
        told += [
            ("parity.check", check.id),
            ("parity.suite", path_of(check.suite)),
        ]
        try:
            while path_of(check.suite) in self._waiting:
                self._start_next()
            verdict = self._run(check.suite).check(check.case, check.what)
        except ParityError as error:
            told.append(("parity.outcome", "error"))
            return sentence(check.id, error)
        told += properties_of(verdict)
        if skipped(verdict, self._settings.require):
            pytest.skip(shown(one_line(verdict.reason)))
        return "" if verdict.outcome.passed else shown(one_line(verdict.sentence))

    def note(self, told: Mapping[str, str]) -> None:
        """Record a check's verdict, in the process that sees all verdicts."""
        case, _, what = told["parity.check"].rpartition("/")
        suite = told["parity.suite"]
        self._asked[suite, case, what] = None
        for other in list(self._untold):
            # In one process, a report of another case means that this case has
            # ended. Reports of several xdist workers are mixed.
            if other != (suite, case) and not self._distributed:
                self._tell(other)
        checks = self._untold.setdefault((suite, case), {})
        checks[what] = told
        if len(checks) == len(WHATS):
            self._tell((suite, case))

    def _tell(self, key: Key) -> None:
        """Print a line for a case, in place of letters for its tests."""
        checks = self._untold.pop(key)
        if self._progress.course is not None:
            self._progress.course.end(key)
        led, self._led = self._led, False
        if self._config.get_verbosity() == 0:
            self._progress.clear()
            if self._writer.width_of_current_line and not led:
                self._writer.line()
            self._tell_header(key[0])
            line = case_line(key[1], checks)
            self._writer.line(shown(line.text), **_TONES.get(line.tone, {}))

    def _run(self, suite: Suite) -> Run:
        path = path_of(suite)
        if path not in self._runs:
            self._runs[path] = Run(
                suite,
                self._settings,
                self._open_folder,
                self._progress.tell,
                next((run.executor for run in self._runs.values()), None),
            )
        return self._runs[path]

    def finish(
        self, session: pytest.Session, *, elsewhere: bool, part: ShardCases | None
    ) -> None:
        """Judge and report, in the process that sees the whole run.

        `elsewhere` says whether a test failed for another reason than parity. `part` is
        the shard that ran; None if no option asked for one.
        """
        self.close()
        if self._worker is not None:
            return
        for key in list(self._untold):
            # A terminal that is closed must not cost the report.
            with suppress(OSError):
                self._tell(key)
        if not self._asked:
            if self._folder is not None:
                self._folder.discard()
            return
        try:
            self._lines, code = conclude(
                self._open_folder(),
                [self._suite(path) for path in {asked[0]: 0 for asked in self._asked}],
                self._settings,
                asked=self._asked,
                argv=["pytest", *map(str, self._config.invocation_params.args)],
                about={} if part is None else {"shard": part},
            )
        except (ParityError, KeyboardInterrupt) as error:
            # pytest would print a traceback of what is stopped here.
            said = str(error) or (
                "The run was stopped while its report was written; "
                f"`parity report {self._open_folder().id}` writes it."
            )
            self._lines = list(wrapped(f"✗ {said}", indent=" ", tone="bad"))
            code = CANNOT_TELL
        for store in {
            run.store.root: run.store for run in self._runs.values()
        }.values():
            self._lines += within_limit(store)
        session.exitstatus = pytest_status(
            code, session.exitstatus, elsewhere=elsewhere
        )

    def _suite(self, path: str) -> Suite:
        run = self._runs.get(path)
        return run.suite if run else load_suite(from_tilde(path))

    def print_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary's lines."""
        if self._lines:
            terminalreporter.section("parity")
        for line in screen(self._lines):
            terminalreporter.line(shown(line.text), **_TONES.get(line.tone, {}))

    def close(self) -> None:
        """End child processes, and leave the terminal as it was."""
        for run in self._runs.values():
            run.close()
        self._progress.close()


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


def check_of(item: pytest.Item) -> Check | None:
    """Return the check that a test is parametrised with; None if there is none."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    return next((value for value in values if isinstance(value, Check)), None)


def leave_out(
    config: pytest.Config, items: list[pytest.Item], chosen: Mapping[str, set[str]]
) -> None:
    """Deselect parity tests that the options do not name.

    Raises:
        pytest.UsageError: An option names something that no suite has.

    """
    checks = [check for item in items if (check := check_of(item))]
    suites = {path_of(check.suite): check.suite for check in checks}
    cases = [case for suite in suites.values() for case in suite.tested]
    for part, names in chosen.items():
        there = list(dict.fromkeys(case.id.split("/")[_PARTS[part]] for case in cases))
        if checks and (unknown := sorted(names - set(there))):
            raise _unknown(part, part, unknown[0], there)
    _keep(
        config,
        items,
        lambda check: all(
            not names or check.case.id.split("/")[_PARTS[part]] in names
            for part, names in chosen.items()
        ),
    )


def _keep(
    config: pytest.Config, items: list[pytest.Item], kept: Callable[[Check], bool]
) -> None:
    """Deselect parity tests whose check is not kept; other tests stay."""
    left = {item for item in items if (check := check_of(item)) and not kept(check)}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def keep_shard(config: pytest.Config, items: list[pytest.Item]) -> ShardCases | None:
    """Deselect parity tests of other shards than --parity-shard names; return it.

    Without any parity test there is no shard.

    Raises:
        pytest.UsageError: The cases cannot be divided into so many shards.

    """

    def key(check: Check) -> Key:
        return path_of(check.suite), check.case.id

    checks = [check for item in items if (check := check_of(item))]
    if not checks:
        return None
    cases = {key(check): check.case for check in checks}
    shard = shard_of(config.getoption("parity_shard"))
    runs = Path(_folder(config, "runs"))
    try:
        part = shard.part_of(
            [(path, case) for (path, _), case in cases.items()], costs_of(runs, cases)
        )
    except ParityError as error:
        msg = sentence("--parity-shard", error)
        raise pytest.UsageError(msg) from None
    own = set(part["own"])
    _keep(config, items, lambda check: key(check) in own)
    return part


def settings_of(config: pytest.Config) -> Settings:
    """Read every option.

    Raises:
        pytest.UsageError: An option is invalid for every suite.

    """
    option = config.getoption
    backends = tuple(name for name in option("parity_backend").split(",") if name)
    require = tuple(name for name in option("parity_require").split(",") if name)
    tier = option("parity_tier")
    for given, kind, names, there in (
        ("backend", "backend", backends, (*runtimes(), MIXED)),
        ("require", "backend", require, tuple(runtimes())),
        ("tier", "tier", (tier,) if tier else (), TIER_NAMES),
    ):
        for name in names:
            if name not in there:
                raise _unknown(given, kind, name, there)
    for given, parse in (("set", parse_changes), ("shard", shard_of)):
        try:
            if text := option(f"parity_{given}"):
                parse(text)
        except SpecError as error:
            msg = sentence(f"--parity-{given}", error)
            raise pytest.UsageError(msg) from None
    runs, baseline = _folder(config, "runs"), option("parity_baseline")
    if baseline:
        try:
            found = baseline_of(baseline, Path(runs))
        except ParityError as error:
            msg = sentence("--parity-baseline", error)
            raise pytest.UsageError(msg) from None
        baseline = str(found.absolute())
    jobs = option("parity_jobs") or "0"
    if not jobs.isdecimal() or (option("parity_jobs") and int(jobs) < 1):
        msg = f"--parity-jobs: takes a whole number from 1, got {jobs!r}."
        raise pytest.UsageError(msg)
    return Settings(
        store=_folder(config, "store"),
        read_only=option("parity_read_only"),
        on=option("parity_on"),
        runs=runs,
        tier=tier,
        changes=tuple(option("parity_set")),
        require=require,
        jobs=int(jobs),
        mnn_convert=option("parity_mnn_convert"),
        baseline=baseline,
    )


def _unknown(option: str, kind: str, name: str, there: Sequence[str]) -> Exception:
    hint = did_you_mean(name, there)
    msg = f"--parity-{option}: there is no {kind} {name!r}; {hint}"
    return pytest.UsageError(msg)


def _folder(config: pytest.Config, name: str) -> str:
    """Return a folder as an absolute path.

    An option's path is relative to the current folder, and a configuration file's path
    to that file.
    """
    if is_url(given := config.getoption(f"parity_{name}")):
        return str(given)
    if given:
        return str(Path(given).expanduser().absolute())
    if is_url(written := config.getini(f"parity_{name}")):
        return str(written)
    if written:
        # Without a file pytest guesses a root from arguments that look like test paths.
        home = config.rootpath if config.inipath else config.invocation_params.dir
        return str(home / Path(written).expanduser())
    return ""
