"""What the user asked for on the command line."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.core.next_steps import NextSteps

RUNS = "reports/runs"
"""Where runs are, from the folder that one works in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for on the command line; text and paths only.

    Attributes:
        store: Folder of artifacts; empty for the default.
        runs: Folder of reports.
        tier: Holds every value to this tier; empty for tolerances.toml.
        changes: ``rtol=1e-3`` and the like, for every tolerance.
        require: Backends that must be there; missing ones fail, not skip.
        jobs: Cases in progress at once; 0 for what the suite says.
        mnn_convert: Native converter; empty for one on PATH or the wheel's.
        baseline: Name or path of the baseline to hold the run against; empty for none.
        isolate: Whether operators run on the reference's own inputs in every case, and
            not only where layers part.

    """

    store: str = ""
    runs: str = RUNS
    tier: str = ""
    changes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    jobs: int = 0
    mnn_convert: str = ""
    baseline: str = ""
    isolate: bool = False

    def next_steps(self, run: str, suite: Path | None = None) -> NextSteps:
        """Return how the commands after a run ask the same of it.

        Args:
            run: Its name.
            suite: Given in the place of its own.

        """
        changes = "".join(f" --set {shlex.quote(change)}" for change in self.changes)
        runs = near(Path(self.runs))
        return NextSteps(
            run=run,
            judged=(f" --tier {self.tier}" if self.tier else "") + changes,
            runs="" if runs == RUNS else f" --runs {shlex.quote(runs)}",
            store=f" --store {shlex.quote(self.store)}" if self.store else "",
            suite=f" --suite {shlex.quote(str(suite))}" if suite else "",
        )


def near(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
