"""By which rtol a row's required atol is compared: that of the tier it is judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from harness.core.errors import ParityError, SuiteError
from harness.core.settings import Settings
from harness.report.runs.rows import RtolOf
from harness.report.runs.snapshot import KeptRow, Snapshot
from harness.suite.judge import Judge
from harness.suite.suite import load_suite


def judges_of(runs: Iterable[Snapshot], suite: Path | None) -> dict[str, Judge]:
    """Return who judges each suite of some runs; one at "", if any, judges all others.

    Raises:
        ParityError: A suite cannot be read, or no run says which it is.

    """
    settings = Settings()
    if suite is not None:
        return {"": Judge.of(load_suite(suite), settings)}
    paths = {case.suite for run in runs for case in run.cases.values()} - {""}
    if not paths:
        msg = "a baseline does not say where its suite is; name it with --suite."
        raise SuiteError(msg)
    judges = {}
    for path in sorted(paths):
        try:
            judges[path] = Judge.of(load_suite(Path(path)), settings)
        except ParityError as error:
            msg = f"{error} Name the suite to judge by with --suite."
            raise SuiteError(msg) from error
    if len(judges) == 1:
        judges[""] = judges[next(iter(judges))]
    return judges


def rtol_by(judges: Mapping[str, Judge], after: Snapshot) -> RtolOf:
    """Return a function from case and row to an rtol of the ladder.

    Where the tier states no rtol it is 0, at which the required atol is the largest
    error.
    """

    @cache
    def rtol(name: str, what: str, probe: str, module: str) -> float:
        judge = judges.get(after.cases[name].suite) or judges.get("")
        if judge is None:
            msg = f"nothing says which suite {name} is of; name it with --suite."
            raise SuiteError(msg)
        component, backend, variant = name.rpartition(":")[2].split("/")
        rule = judge.policy.for_probe(
            component=component,
            backend=backend,
            variant=variant,
            group=what,
            probe=probe,
            module=module,
        )
        return rule.tolerance.rtol or 0.0

    def of_row(name: str, row: KeptRow) -> float:
        return rtol(name, row.what, row.probe, row.module)

    return of_row
