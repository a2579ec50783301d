"""The pytest plugin: options, marker, fixtures, exit code and summary; no numerics.

Every pytest run of the environment imports this module. So it imports the rest of the
harness only when a parity test runs.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from harness.core.run_options import OF_RUN

if TYPE_CHECKING:
    from harness.commands.pytest_session import ParitySession
    from harness.suite.shards import ShardCases
    from harness.suite.suite import Check

_SESSION = pytest.StashKey["ParitySession"]()
_PART: pytest.StashKey[ShardCases] = pytest.StashKey()
_FAILED = pytest.StashKey[bool]()
"""Whether a test failed for another reason than parity."""
_DIVIDED = pytest.StashKey[bool]()
_DIVIDED_KEY = "parity_divided"
"""Whether pytest-xdist divides parity tests; the second is for a worker's output."""
_LEAVE_OUT = (
    "-n: parity tests run their cases at once by themselves, so pytest-xdist does not "
    "divide them; leave out -n, or the parity tests by -m 'not parity'."
)
_PASSED = ("within", "gap")
_PARTS = {"component": "components", "backend": "runtimes", "variant": "variants"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options in one group; all are plain text, so that xdist can send them."""
    group = parser.getgroup("parity", "numerical parity")
    for part, words in _PARTS.items():
        text = f"only these {words}"
        group.addoption(f"--parity-{part}", metavar="NAME,...", default="", help=text)
    for name, (metavar, text) in OF_RUN.items():
        option = f"--parity-{name}"
        if not metavar:
            group.addoption(option, action="store_true", help=text)
        elif name == "set":
            group.addoption(
                option, metavar=metavar, action="append", default=[], help=text
            )
        else:
            group.addoption(option, metavar=metavar, default="", help=text)
    parser.addini("parity_store", "where artifacts are kept", default="")
    parser.addini("parity_runs", "where reports are written", default="reports/runs")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and refuse invalid options before anything runs."""
    marker = "parity: compares a deployed model with PyTorch; runs real runtimes"
    config.addinivalue_line("markers", marker)
    named = [config.getoption(f"parity_{name.replace('-', '_')}") for name in _CHECKED]
    if any(named):
        from harness.commands.pytest_session import settings_of

        settings_of(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reports(config), "parity-reports")
        if "parity" in config.option.markexpr.split():
            # It takes seconds to collect, and several Ctrl-C may come meanwhile.
            from harness.core.stopping import stopped_by_signals

            stopped = ExitStack()
            stopped.enter_context(stopped_by_signals())
            config.add_cleanup(stopped.close)


_CHECKED = ("tier", "backend", "require", "jobs", "set", "baseline", "shard")
"""Options whose values can be checked before a suite is known."""


def session_of(config: pytest.Config) -> ParitySession:
    """Return this process's session; the first call makes it."""
    if _SESSION not in config.stash:
        from harness.commands.pytest_session import ParitySession

        config.stash[_SESSION] = ParitySession(config)
    return config.stash[_SESSION]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Deselect tests that the options do not name, and tests of other shards.

    A shard is a part of what pytest's own options leave, so these come between.
    """
    chosen = {
        part: {name for name in config.getoption(f"parity_{part}").split(",") if name}
        for part in _PARTS
    }
    divided = hasattr(config, "workeroutput")
    if any(chosen.values()) and not divided:
        from harness.commands.pytest_session import leave_out

        leave_out(config, items, chosen)
    yield
    if divided:
        if any("parity" in getattr(item, "fixturenames", ()) for item in items):
            output = config.workeroutput  # type: ignore[attr-defined]  # xdist's own
            output[_DIVIDED_KEY] = True  # the controller alone can refuse
            items.clear()
    elif config.getoption("parity_shard"):
        from harness.commands.pytest_session import keep_shard

        if part := keep_shard(config, items):
            config.stash[_PART] = part


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[
    None, pytest.CollectReport, pytest.CollectReport
]:
    """Report a suite that cannot be read by a sentence, not by a traceback."""
    report = yield
    error = getattr(getattr(report, "call", None), "excinfo", None)
    if error is not None:
        from harness.core.errors import ParityError

        if isinstance(error.value, ParityError):
            from harness.core.shown import sentence

            report.longrepr = sentence("parity", error.value)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Before the first test, start the cases, with visible progress."""
    config = session.config
    if config.option.collectonly or session.testsfailed:
        return
    if any(item.get_closest_marker("parity") for item in session.items):
        session_of(config).start(session.items)


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> ParityCheck:
    """Require parity: ``parity.require(check)`` fails where the models diverge."""
    return ParityCheck(request)


class ParityCheck:
    """The value of the ``parity`` fixture in one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def require(self, check: Check) -> None:
        """Run one check, record its verdict, and fail the test unless it passed.

        The failure is one sentence, because a traceback into the harness would say
        nothing about the models.
        """
        __tracebackhide__ = True
        failure = session_of(self._request.config).require(check, self._request.node)
        if failure:
            pytest.fail(failure, pytrace=False)


class _Reports:
    """Pass test reports to the session, in the process that sees every report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the verdict of a parity test, and whether another test failed."""
        told = told_by(report)
        if told:
            session_of(self._config).note(told)
        if report.failed and told.get("parity.outcome", "within") in _PASSED:
            self._config.stash[_FAILED] = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self) -> Generator[None]:
        """Keep the reason in the line of each failure, which pytest prints last.

        It cuts the line at the width of the terminal, unless it runs in a CI, and the
        id of a parity test leaves no room for a reason in 80 columns.
        """
        before = os.environ.get("CI")
        if _SESSION in self._config.stash:
            os.environ["CI"] = before or "true"
        try:
            yield
        finally:
            os.environ.pop("CI", None)
            if before is not None:
                os.environ["CI"] = before

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, str] | None:
        """Print no letter for a parity test, because its case has a line of its own."""
        if self._config.get_verbosity() or not told_by(report):
            return None
        if hasattr(report, "wasxfail"):
            return None
        return report.outcome, "", report.outcome.upper()


def told_by(report: pytest.TestReport | pytest.CollectReport) -> dict[str, str]:
    """Return a parity test's properties of its check; empty for other reports."""
    if getattr(report, "when", "") != "call":
        return {}
    properties = getattr(report, "user_properties", ())
    return {
        str(name): str(value)
        for name, value in properties
        if str(name).startswith("parity.")
    }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Keep that a worker of pytest-xdist has refused to run parity tests."""
    if _DIVIDED_KEY in (getattr(node, "workeroutput", None) or {}):
        node.config.stash[_DIVIDED] = True  # type: ignore[attr-defined]  # xdist's own


@pytest.hookimpl(tryfirst=True)
def pytest_keyboard_interrupt(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Leave out what pytest cannot print: code that a program wrote has no line."""
    excinfo.traceback = excinfo.traceback.filter(
        lambda entry: entry.frame.raw.f_code.co_filename != "<string>"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End child processes, write the report, and exit with 2 if parity is unknown."""
    if _DIVIDED in session.config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    parity_session = session.config.stash.get(_SESSION, None)
    if parity_session is not None:
        parity_session.finish(
            session,
            elsewhere=session.config.stash.get(_FAILED, False),
            part=session.config.stash.get(_PART, None),
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary, first divergence first."""
    if _DIVIDED in terminalreporter.config.stash:
        terminalreporter.line(f"ERROR: {_LEAVE_OUT}", red=True)
    parity_session = terminalreporter.config.stash.get(_SESSION, None)
    if parity_session is not None:
        parity_session.print_summary(terminalreporter)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End child processes however the run ended."""
    parity_session = config.stash.get(_SESSION, None)
    if parity_session is not None:
        parity_session.close()
