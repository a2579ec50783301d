"""One pytest process's part in a parity run: the plugin's other half.

Imported when the first parity test runs. Under pytest-xdist each worker has one, on
a run folder that the controller made; the controller judges and reports at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from harness.errors import NoParity, ParityError
from harness.outcome import Outcome
from harness.progress import ProgressLines
from harness.report.lines import Line
from harness.report.run_folder import RunFolder
from harness.runner import Judge, Run, Settings, conclude
from harness.spec import Case
from harness.suite import Suite, load_suite

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
        self._could_tell = True
        self._progress: ProgressLines | None = None

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

    def check(self, suite: Any, case: Any, what: str, node: pytest.Item) -> None:  # noqa: ANN401  # from a user's test
        """Run one check, note its verdict on the test, and require it."""
        __tracebackhide__ = True
        if not isinstance(suite, Suite) or not isinstance(case, Case):
            msg = "parity.check takes a suite, a case of it, and 'layers' or 'outputs'."
            raise TypeError(msg)
        run = self._run(suite, node.session)
        if reason := run.missing(case):
            if case.backend not in self._settings.require:
                pytest.skip(reason)
            raise NoParity(f"{case.id}: {reason}, and --parity-require asks for it.")
        verdict = run.check(case, what)
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
            raise NoParity(f"{verdict.id}: {verdict.outcome}: {verdict.reason}")

    def _run(self, suite: Suite, session: pytest.Session) -> Run:
        run = self._runs.get(suite.path)
        if run is None:
            alone = self._worker is None
            self._progress = self._progress or ProgressLines(
                sys.__stderr__ if not alone else _terminal(self._config), enabled=alone
            )
            run = Run(suite, self._settings, self.folder, self._progress.tell)
            self._runs[suite.path] = run
            if alone:
                # Workers of xdist share the cases out among themselves.
                run.start(_cases_of(session.items, suite))
        return run

    def finish(self, session: pytest.Session) -> None:
        """Judge and report, in the process that sees the whole run."""
        self.close()
        if self._worker is not None or self._folder is None:
            return
        suites = self._suites(session)
        try:
            judges = {suite.name: Judge.of(suite, self._settings) for suite in suites}
            self._lines, code = conclude(
                self.folder,
                judges,
                suites,
                whole=self._whole(session, suites),
                argv=["pytest", *self._config.invocation_params.args],
            )
        except ParityError as error:
            self._lines, code = [Line(text=f" ✗ {error}", tone="bad")], 2
        # Exit 1 says "no parity"; a run that could not tell must not be taken for it.
        only_parity_failed = session.testsfailed == self._failed_checks()
        if code == 2 and only_parity_failed and session.exitstatus in {0, 1}:
            session.exitstatus = 2

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
        if self._progress is not None:
            self._progress.close()
