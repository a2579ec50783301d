"""The user's options on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.private import from_tilde
from harness.core.text import Line

RUNS = "reports/runs"
"""The folder of runs, relative to the working directory."""

SUITE_FILE = "parity.toml"
"""The usual name of a suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSteps:
    """Options with which the next commands judge a run in the same way.

    Attributes:
        run: Name of the run in a command.
        judged: Options that choose the tolerances, with a blank before each.
        runs: Option of the folder of runs, with a blank before it; empty for the usual
            folder.
        store: Option of the store, with a blank before it; empty for the usual store.
        suite: Option of a suite that replaces the run's own, with a blank before it;
            empty for the run's own.
        running: Options that a further run needs besides, with a blank before each.

    """

    run: str = "last"
    judged: str = ""
    runs: str = ""
    store: str = ""
    suite: str = ""
    running: str = ""

    def lines(self, name: str, case: str, suite: str) -> Iterator[Line]:
        """Yield lines with the commands that show a case's values and explain them.

        `name` is that of the case in the run. `case` is its id in the suite; it is
        empty if nothing can be explained.
        """
        yield Line(text=f" all layers  {self.show(name)}", tone="quiet")
        if case:
            yield Line(text=f" why         {self.explain(case, suite)}", tone="quiet")

    def show(self, name: str) -> str:
        """Return the command that lists every value of a case."""
        case = shlex.quote(name)
        return f"parity show {self.run} {case}{self.runs}{self.suite}{self.judged}"

    def gate(self, suite: str) -> str:
        """Return the command that compares a run of a suite with its baseline."""
        return f"parity gate {self.run}{self.runs}{self._of(suite)}"

    def rest(self, suite: str) -> str:
        """Return the command that runs every case of a suite."""
        of = self._of(suite)
        return f"parity run{of}{self.runs}{self.store}{self.judged}{self.running}"

    def again(self, case: str, suite: str) -> str:
        """Return the command that runs one case of a suite."""
        return f"parity run {case}{self._of(suite)}{self.store}"

    def explain(self, case: str, suite: str) -> str:
        """Return the command that explains a case of a suite."""
        of = self._of(suite)
        return f"parity explain {case}{self.runs}{of}{self.store}{self.judged}"

    def _of(self, suite: str) -> str:
        """Return the option that names a suite; empty for the suite in this folder."""
        if self.suite or not suite:
            return self.suite
        path = from_tilde(suite)
        if path == Path.cwd() / SUITE_FILE:
            return ""
        named = path.parent if path.name == SUITE_FILE else path
        return f" --suite {shlex.quote(near(named))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's options on the command line, as text and paths.

    Attributes:
        store: Folder of artifacts, or the URL of a store that machines share; empty
            for the default folder.
        read_only: Whether nothing may be put into a shared store.
        runs: Folder of reports.
        tier: Tier that judges every value; empty to use tolerances.toml.
        changes: Changes of every tolerance, such as ``rtol=1e-3``.
        require: Backends that must be installed. A missing one fails and is not
            skipped.
        jobs: Number of cases that run at once; 0 for the suite's number.
        mnn_convert: Path of MNN's native converter; empty for the one on PATH or in the
            wheel.
        baseline: Name or path of the baseline to compare with; empty for no comparison.
        on: Cluster that runs the cases, ``ray`` or ``ray://host:10001``; empty for this
            machine.
        isolate: Whether operators run on the reference's own inputs in every case, and
            not only where a layer diverges.

    """

    store: str = ""
    read_only: bool = False
    runs: str = RUNS
    tier: str = ""
    changes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    jobs: int = 0
    mnn_convert: str = ""
    baseline: str = ""
    on: str = ""
    isolate: bool = False

    def next_steps(self, run: str, *suites: Path) -> NextSteps:
        """Return the options that give the next commands the same settings.

        `suites` are given if they replace the run's own.
        """
        changes = "".join(f" --set {shlex.quote(change)}" for change in self.changes)
        running = {
            "--read-only": self.read_only,
            "--require": ",".join(self.require),
            "--jobs": self.jobs,
            "--mnn-convert": self.mnn_convert,
            "--on": self.on,
            "--isolate": self.isolate,
        }
        runs = near(Path(self.runs))
        return NextSteps(
            run=run,
            judged=(f" --tier {self.tier}" if self.tier else "") + changes,
            runs="" if runs == RUNS else f" --runs {shlex.quote(runs)}",
            store=f" --store {shlex.quote(self.store)}" if self.store else "",
            suite="".join(f" --suite {shlex.quote(str(suite))}" for suite in suites),
            running="".join(
                f" {option}"
                if value is True
                else f" {option} {shlex.quote(str(value))}"
                for option, value in running.items()
                if value
            ),
        )


def near(path: Path) -> str:
    """Return a path relative to the working directory, if it lies in there."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
