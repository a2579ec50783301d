"""The pytest plugin: options, marker, fixture, exit code and summary; no numerics.

It is imported in every pytest run of the environment it is installed in, so what it
needs is imported when a parity test runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.parity_session import ParitySession
    from harness.suite import Check

_SESSION = pytest.StashKey["ParitySession"]()
_WORKER_KEY = "parity_run"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, all in one group, all plain text: xdist must carry them."""
    group = parser.getgroup("parity", "numerical parity")
    add = group.addoption
    add("--parity-store", metavar="DIR", default="", help="where artifacts are kept")
    add("--parity-runs", metavar="DIR", default="", help="where reports are written")
    add(
        "--parity-tier",
        metavar="TIER",
        default="",
        help="hold every value to this tier instead of tolerances.toml",
    )
    add(
        "--parity-set",
        metavar="BOUND=VALUE",
        action="append",
        default=[],
        help="change a bound of every tolerance, for example sqnr_db=30; repeatable",
    )
    add(
        "--parity-component",
        metavar="NAME,...",
        default="",
        help="only these components",
    )
    add("--parity-backend", metavar="NAME,...", default="", help="only these runtimes")
    add(
        "--parity-variant", metavar="NAME,...", default="", help="only these variants"
    )
    add(
        "--parity-require",
        metavar="NAME,...",
        default="",
        help="runtimes that must be installed; a missing one fails instead of skipping",
    )
    add(
        "--parity-jobs",
        metavar="N",
        type=int,
        default=0,
        help="cases in progress at once; the suite says when left out",
    )
    add(
        "--parity-mnn-convert",
        metavar="PROGRAM",
        default="",
        help="a native MNNConvert to use instead of the wheel's converter",
    )
    parser.addini("parity_store", "where artifacts are kept", default="")
    parser.addini("parity_runs", "where reports are written", default="reports/runs")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "parity: compares a deployed model with PyTorch; runs real runtimes"
    )


def _session(config: pytest.Config) -> ParitySession:
    """Return this process's session, made when first needed."""
    if _SESSION not in config.stash:
        from harness.parity_session import ParitySession

        config.stash[_SESSION] = ParitySession(config)
    return config.stash[_SESSION]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what --parity-component, -backend and -variant do not name."""
    chosen = {
        part: {name for name in config.getoption(f"parity_{part}").split(",") if name}
        for part in ("component", "backend", "variant")
    }
    if any(chosen.values()):
        from harness.parity_session import leave_out

        leave_out(config, items, chosen)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Before the first test, make what the store lacks, where people can watch."""
    config = session.config
    if config.option.collectonly or session.testsfailed:
        return
    if any(item.get_closest_marker("parity") for item in session.items):
        _session(config).make(session.items)


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> ParityCheck:
    """Require parity: ``parity.require(check)`` fails where the models part."""
    return ParityCheck(request)


class ParityCheck:
    """What the ``parity`` fixture gives to one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def require(self, check: Check) -> None:
        """Run one check, record its verdict, and fail the test unless it passed.

        The failure is one sentence: a traceback into the harness would say nothing
        about the models.
        """
        __tracebackhide__ = True
        from harness.errors import ParityError

        try:
            _session(self._request.config).require(check, self._request.node)
        except ParityError as error:
            pytest.fail(str(error), pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell an xdist worker which run it is part of."""
    session = _session(node.config)  # type: ignore[attr-defined]  # xdist's WorkerController
    node.workerinput[_WORKER_KEY] = session.run_folder_path()  # type: ignore[attr-defined]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close child processes, write the report, and say 2 when parity is unknown."""
    parity_session = session.config.stash.get(_SESSION, None)
    if parity_session is not None:
        parity_session.finish(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary, first divergence first."""
    parity_session = terminalreporter.config.stash.get(_SESSION, None)
    if parity_session is not None:
        parity_session.print_summary(terminalreporter)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End child processes however the run ended."""
    parity_session = config.stash.get(_SESSION, None)
    if parity_session is not None:
        parity_session.close()
