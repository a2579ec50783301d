"""One pytest process's part in a parity run: the plugin's other half.

Imported when the first parity test runs. Under pytest-xdist each worker has one, on
a run folder that the controller made; the controller judges and reports at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from harness.errors import NoParity, ParityError
from harness.progress import ProgressLines
from harness.report.lines import Line
from harness.report.run_folder import RunFolder
from harness.runner import Run, Settings, conclude, near
from harness.spec import Case
from harness.store import Store
from harness.suite import Check, Suite
from harness.toml_file import did_you_mean

CANNOT_TELL = 2
_TONES = {"good": {"green": True}, "bad": {"red": True}, "quiet": {"light": True}}


class ParitySession:
    """Suites, runs and verdicts of one pytest process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._settings = settings_of(config)
        self._worker = getattr(config, "workerinput", None)
        self._folder: RunFolder | None = None
        self._runs: dict[Path, Run] = {}
        self._lines: list[Line] = []
        writer = config.get_terminal_writer()
        self._progress = ProgressLines(
            writer,
            live=self._worker is None and writer.hasmarkup,
        )

    @property
    def folder(self) -> RunFolder:
        """The run's folder, made when first needed, the controller's in a worker."""
        if self._folder is None:
            if self._worker is not None:
                self._folder = RunFolder(path=Path(self._worker["parity_run"]))
            else:
                runs = Path(self._settings.runs)
                self._folder = RunFolder.create(runs, datetime.now().astimezone())
        return self._folder

    def run_folder_path(self) -> str:
        """Return the folder as xdist can carry it."""
        return str(self.folder.path)

    def make(self, items: Sequence[pytest.Item]) -> None:
        """Make what the store lacks, showing progress, and start every case.

        Workers of xdist do neither: they share cases out as tests ask for them.
        """
        checks = [check for item in items if (check := check_of(item))]
        for suite in dict.fromkeys(check.suite for check in checks):
            run = self._run(suite)
            if self._worker is not None or self._distributes:
                continue
            cases = list(
                dict.fromkeys(check.case for check in checks if check.suite is suite)
            )
            present = [case for case in cases if not run.missing(case)]
            self._say(header(suite, cases, run.store))
            run.make(present)
            self._progress.lasting = False
            run.start(present)

    def require(self, check: Check, node: pytest.Item) -> None:
        """Run one check, note its verdict on the test, and require it."""
        __tracebackhide__ = True
        if not isinstance(check, Check):
            msg = "parity.require takes a Check, one of SUITE.checks()."
            raise TypeError(msg)
        run = self._run(check.suite)
        if reason := run.missing(check.case):
            if check.case.backend not in self._settings.require:
                pytest.skip(reason)
            msg = f"{check.id}: {reason}, and --parity-require asks for it."
            raise NoParity(msg)
        verdict = run.check(check.case, check.what)
        node.user_properties += [
            ("parity.outcome", verdict.outcome.value),
            ("parity.reason", verdict.reason),
            ("parity.usage", f"{verdict.usage:.3g}"),
        ]
        if verdict.first is not None:
            node.user_properties.append(
                ("parity.first_divergence", verdict.first.row.probe)
            )
        if not verdict.outcome.passed:
            msg = f"{verdict.id}: {verdict.outcome}: {verdict.reason}"
            raise NoParity(msg)

    def _run(self, suite: Suite) -> Run:
        run = self._runs.get(suite.path)
        if run is None:
            run = Run(suite, self._settings, self.folder, self._progress.tell)
            self._runs[suite.path] = run
        return run

    @property
    def _distributes(self) -> bool:
        """Whether this is xdist's controller, which runs no test itself."""
        return self._config.pluginmanager.hasplugin("dsession")

    def _say(self, text: str) -> None:
        self._config.get_terminal_writer().line(text)

    def finish(self, session: pytest.Session) -> None:
        """Judge and report, in the process that sees the whole run."""
        self.close()
        if self._worker is not None or self._folder is None:
            return
        suites = {check.suite.name: check.suite for check in self._checks(session)}
        try:
            self._lines, code = conclude(
                self._folder,
                list(suites.values()),
                self._settings,
                whole=self._whole(session, list(suites.values())),
                argv=["pytest", *map(str, self._config.invocation_params.args)],
            )
        except ParityError as error:
            self._lines, code = [Line(text=f" ✗ {error}", tone="bad")], 2
        # pytest's 1 says that a test failed. Where only parity tests failed, and none
        # of them because numbers differ, the run could not tell, which is 2.
        failed = self._config.pluginmanager.get_plugin("terminalreporter").stats
        others = [
            report
            for kind in ("failed", "error")
            for report in failed.get(kind, [])
            if "parity" not in report.keywords
        ]
        if code == CANNOT_TELL and session.exitstatus in {0, 1} and not others:
            session.exitstatus = CANNOT_TELL

    def print_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary's lines."""
        if self._lines:
            terminalreporter.section("parity")
        for line in self._lines:
            terminalreporter.line(line.text, **_TONES.get(line.tone, {}))

    def close(self) -> None:
        """End child processes."""
        for run in self._runs.values():
            run.close()
        self._progress.close()

    def _checks(self, session: pytest.Session) -> list[Check]:
        return [check for item in session.items if (check := check_of(item))]

    def _whole(self, session: pytest.Session, suites: Sequence[Suite]) -> bool:
        """Whether every check of the suites was asked for."""
        asked = {check.id for check in self._checks(session)}
        every = {check.values[0].id for suite in suites for check in suite.checks()}
        return asked == every and bool(every)


def check_of(item: pytest.Item) -> Check | None:
    """Return the check that a test was parametrised with, if it was."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    return next((value for value in values if isinstance(value, Check)), None)


def leave_out(
    config: pytest.Config, items: list[pytest.Item], chosen: Mapping[str, set[str]]
) -> None:
    """Deselect parity tests that the options do not name.

    Raises:
        pytest.UsageError: An option names something that no check has.

    """
    checks = [check for item in items if (check := check_of(item))]
    for part, names in chosen.items():
        there = {_part(check, part) for check in checks}
        if unknown := sorted(names - there):
            hint = did_you_mean(unknown[0], sorted(there))
            msg = f"--parity-{part}: there is no {part} {unknown[0]!r}; {hint}"
            raise pytest.UsageError(msg)
    kept, left = [], []
    for item in items:
        check = check_of(item)
        named = check is None or all(
            not names or _part(check, part) in names for part, names in chosen.items()
        )
        (kept if named else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def _part(check: Check, part: str) -> str:
    case = check.case
    return {
        "component": case.component.name,
        "backend": case.backend,
        "variant": case.variant.name,
    }[part]


def settings_of(config: pytest.Config) -> Settings:
    """Read every option once."""
    option = config.getoption
    return Settings(
        store=option("parity_store") or config.getini("parity_store"),
        runs=str(
            config.rootpath / (option("parity_runs") or config.getini("parity_runs"))
        ),
        tier=option("parity_tier"),
        changes=tuple(option("parity_set")),
        require=tuple(name for name in option("parity_require").split(",") if name),
        jobs=option("parity_jobs"),
        mnn_convert=option("parity_mnn_convert"),
    )


def header(suite: Suite, cases: Sequence[Case], store: Store) -> str:
    """Return the line that says what is going to run."""

    def count(names: Iterable[str], noun: str) -> str:
        number = len(set(names))
        return f"{number} {noun}{'s' if number != 1 else ''}"

    size = sum(entry.size_bytes for entry in store.entries()) / 2**20
    return (
        f"parity: {near(suite.path)} · "
        f"{count((c.component.name for c in cases), 'component')} × "
        f"{count((c.backend for c in cases), 'backend')}, {count((c.id for c in cases), 'case')} · "
        f"store {size:,.0f} MB"
    )
