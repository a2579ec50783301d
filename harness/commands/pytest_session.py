"""The parity session of one pytest process, which does the work of the plugin.

The plugin imports this module when the first parity test runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO, cast

import pytest

from harness.commands import session
from harness.commands.progress import ProgressLines, moves
from harness.commands.session import (
    RunSession,
    names_in,
    properties_of,
    refuse_unknown,
    shard_part,
)
from harness.core.end_to_end import MIXED
from harness.core.errors import ParityError, SpecError
from harness.core.outcome import CANNOT_TELL
from harness.core.record import WHATS, Key
from harness.core.run_options import OF_RUN
from harness.core.runtime import runtimes
from harness.core.settings import Settings
from harness.core.shown import sentence, shown
from harness.core.stopping import stopped_by_signals
from harness.core.store_root import is_url
from harness.core.text import Line, case_line, one_line, screen, wrapped
from harness.engine.run import Asked, path_of
from harness.judge.case import skipped
from harness.judge.run import pytest_status
from harness.suite.shards import ShardCases
from harness.suite.suite import Check

_STOP_TIMER = "pytest_timeout_cancel_timer"
"""The hook by which pytest-timeout, where it is installed, takes its limit back."""

_PARTS = {"component": 0, "backend": 1, "variant": 2}
_TONES = {"good": {"green": True}, "bad": {"red": True}, "quiet": {"light": True}}


class ParitySession:
    """The suites, runs and verdicts of one pytest process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._asked: dict[Asked, None] = {}
        self._untold: dict[Key, dict[str, Mapping[str, str]]] = {}
        self._lines: list[Line] = []
        self._writer = config.get_terminal_writer()
        self._stream, live = self._terminal()
        self._progress = ProgressLines(
            self._stream, live=live, room=self._room, lead=self._lead
        )
        self._progress.lasting = isinstance(self._stream, TextIOWrapper)
        self._led = False
        self._session = RunSession(settings_of(config), self._progress.tell)

    @property
    def running(self) -> RunSession:
        """The run that a test may add cases to; `count` puts them into its report."""
        return self._session

    def count(self, asked: Iterable[Asked]) -> None:
        """Count checks that a test has run by itself."""
        self._asked |= dict.fromkeys(asked)

    def _terminal(self) -> tuple[TextIO, bool]:
        """Return a stream that works while pytest captures output, if there is one."""
        with suppress(OSError, ValueError):  # a stdout of no file
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

    def start(self, items: Sequence[pytest.Item]) -> None:
        """Start the cases of all parity tests, with visible progress."""
        stopped = ExitStack()  # until the report is written, after `close`
        stopped.enter_context(stopped_by_signals())
        self._config.add_cleanup(stopped.close)
        checks = [
            check
            for item in items
            # Such as every other test than benchmarks.
            if not item.get_closest_marker("skip") and (check := check_of(item))
        ]
        try:
            self._session.prepare(checks)
        except ParityError as error:
            pytest.exit(sentence("parity", error), returncode=CANNOT_TELL)
        self._progress.course = self._session.course
        if checks:
            self._tell_header(path_of(checks[0].suite))
        self._session.start()

    def _tell_header(self, path: str) -> None:
        """Print what runs of a suite, before its first case."""
        if text := self._session.headers.pop(path, ""):
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
            verdict = self._session.verdict(check)
        except ParityError as error:
            told.append(("parity.outcome", "error"))
            return sentence(check.id, error)
        told += properties_of(verdict)
        if skipped(verdict, self._session.settings.require):
            pytest.skip(shown(one_line(verdict.reason)))
        return "" if verdict.outcome.passed else shown(one_line(verdict.sentence))

    def note(self, told: Mapping[str, str]) -> None:
        """Record a check's verdict, in the process that sees all verdicts."""
        case, _, what = told["parity.check"].rpartition("/")
        suite = told["parity.suite"]
        self._asked[suite, case, what] = None
        for other in list(self._untold):
            if other != (suite, case):  # a report of another case: this one has ended
                self._tell(other)
        checks = self._untold.setdefault((suite, case), {})
        checks[what] = told
        if len(checks) == len(WHATS):
            self._tell((suite, case))

    def _tell(self, key: Key) -> None:
        """Print a line for a case, in place of letters for its tests."""
        checks = self._untold.pop(key)
        self._session.course.end(key)
        led, self._led = self._led, False
        if self._config.get_verbosity() == 0:
            self._progress.clear()
            if self._writer.width_of_current_line and not led:
                self._writer.line()
            self._tell_header(key[0])
            line = case_line(key[1], checks)
            self._writer.line(shown(line.text), **_TONES.get(line.tone, {}))

    def finish(
        self, session: pytest.Session, *, elsewhere: bool, part: ShardCases | None
    ) -> None:
        """Judge and report.

        `elsewhere` says whether a test failed for another reason than parity. `part` is
        the shard that ran; None if no option asked for one.
        """
        self.close()
        for key in list(self._untold):
            # A terminal that is closed must not cost the report.
            with suppress(OSError):
                self._tell(key)
        if not self._asked:
            self._session.discard()
            return
        argv = ["pytest", *map(str, self._config.invocation_params.args)]
        try:
            self._lines, code = self._session.finish(self._asked, argv, part)
        except (ParityError, KeyboardInterrupt) as error:
            # pytest would print a traceback of what is stopped here.
            said = str(error) or (
                "The run was stopped while its report was written; "
                f"`parity report {self._session.folder().id}` writes it."
            )
            self._lines = list(wrapped(f"✗ {said}", indent=" ", tone="bad"))
            code = CANNOT_TELL
        session.exitstatus = pytest_status(
            code, session.exitstatus, elsewhere=elsewhere
        )

    def print_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary's lines."""
        if self._lines:
            terminalreporter.section("parity")
        for line in screen(self._lines):
            terminalreporter.line(shown(line.text), **_TONES.get(line.tone, {}))

    def close(self) -> None:
        """End child processes, and leave the terminal as it was."""
        self._session.close()
        self._progress.close()


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
        if checks:
            with usage_errors():
                refuse_unknown(f"--parity-{part}", part, sorted(names), there)
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

    cases = {
        key(check): (path_of(check.suite), check.case)
        for item in items
        if (check := check_of(item))
    }
    if not cases:
        return None
    with usage_errors():
        shard = config.getoption("parity_shard")
        runs = _folder(config, "runs")
        part = shard_part("--parity-shard", shard, [*cases.values()], runs)
    own = set(part["own"])
    _keep(config, items, lambda check: key(check) in own)
    return part


@contextmanager
def usage_errors() -> Iterator[None]:
    """Refuse an option as pytest does."""
    try:
        yield
    except SpecError as error:
        raise pytest.UsageError(shown(one_line(str(error)))) from None


def settings_of(config: pytest.Config) -> Settings:
    """Read every option.

    Raises:
        pytest.UsageError: An option is invalid for every suite.

    """
    names = [name.replace("-", "_") for name in OF_RUN]
    options = {name: config.getoption(f"parity_{name}") for name in names}
    options |= {name: _folder(config, name) for name in ("store", "runs")}
    options["changes"] = tuple(options["set"])
    backends = names_in(config.getoption("parity_backend"))
    with usage_errors():
        refuse_unknown("--parity-backend", "backend", backends, (*runtimes(), MIXED))
        return session.settings_of(options, "--parity-")


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
