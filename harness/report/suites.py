"""Say which suites judge a finished run; a path in a run never makes a suite load.

A run may come from somebody else, and to load a suite is to import its recipes. Every
command on a finished run asks this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.errors import ParityError, SuiteError
from harness.core.private import with_tilde
from harness.core.settings import RUNS, SUITE_FILE, Settings
from harness.core.text import few
from harness.engine.finished_run import Report
from harness.engine.run import path_of
from harness.suite.judge import Judge
from harness.suite.suite import Suite, load_suite


def suites_for(report: Report, given: Sequence[Suite] = ()) -> dict[str, Suite]:
    """Return the suites by which a run may be judged, by their paths in the run.

    A run may come from somebody else, and a suite imports its recipes. So a path in a
    run never makes a suite load. These are loaded:

    - The suites that the user has `given`. The only one is that of a run of one suite,
      wherever it lies; of a run of several, a suite must have its path in the run.
    - Else the suite in the current folder, if the run names its path, or if the run
      lies in its ``reports/runs`` and is of a suite in a folder of the same name.

    A suite that is not among them is shown as the run was judged.

    Raises:
        SuiteError: A given suite is none of the run's, or the suite in the current
            folder cannot be read.

    """
    if given and len(given) == len(report.suites) == 1:
        return dict(zip(report.suites, given, strict=True))
    found = {path_of(suite): suite for suite in given}
    for path in found.keys() - report.suites.keys():
        there = few(list(report.suites))
        msg = f"run {report.id} is of {there}, and {path} is none of them."
        raise SuiteError(msg)
    if given:
        return found
    named = _named_here(report)
    if named is None:
        return {}
    try:
        return {named: load_suite(Path(SUITE_FILE))}
    except ParityError as error:
        msg = (
            f"Run {report.id} is of the suite in this folder, which cannot be read; "
            f"name the one to judge by with --suite. {error}"
        )
        raise SuiteError(msg) from error


def all_suites_for(report: Report, given: Sequence[Suite] = ()) -> list[Suite]:
    """Return every suite of a run, in the run's order; see `suites_for`.

    Raises:
        SuiteError: A suite of the run is neither given nor in the current folder.

    """
    found = suites_for(report, given)
    for path in report.suites:
        if path not in found:
            raise _no_suite(report, path)
    return [found[path] for path in report.suites]


def _named_here(report: Report) -> str | None:
    """Return the path in a run of the suite in the current folder; None if of none."""
    here, folder = Path.cwd(), report.path.parent.resolve()
    file = here / SUITE_FILE
    # In the run's own folder, a file beside the report came with the run.
    if not file.is_file() or folder in {here, *here.parents}:
        return None
    # Earlier versions wrote the path of a home in full.
    for path in (with_tilde(file.resolve()), str(file.resolve())):
        if path in report.suites:
            return path
    if folder.parent == (here / RUNS).resolve() and len(report.suites) == 1:
        (path,) = report.suites
        # The project has moved, or another machine ran the suite.
        if Path(path).parts[-2:] == file.parts[-2:]:
            return path
    return None


def _no_suite(report: Report, path: str, why: str = "") -> SuiteError:
    """Return the error of a command that needs a suite which is not loaded."""
    text = f"run {report.id} is of the suite {path}, which is not in this folder"
    return SuiteError(f"{text}{f', {why}' if why else ''}; name it with --suite.")


def judges_beside(report: Report, given: Sequence[Suite]) -> dict[str, Judge]:
    """Return the judges by which the rows of a run, or a baseline, are compared.

    The only suite that is given judges every case. A baseline keeps no path of a suite
    and no tolerances, so a suite must be given.

    Raises:
        ParityError: A suite's files are wrong, or nothing says which tolerances to use.

    """
    if len(given) == 1:
        return {"": Judge.of(given[0], Settings())}
    if not any(
        path.startswith("~") or Path(path).is_absolute() for path in report.suites
    ):
        msg = "a baseline does not say where its suite is; name it with --suite."
        raise SuiteError(msg)
    return judges_of(report, suites_for(report, given), Settings())


def judges_of(
    report: Report, suites: Mapping[str, Suite], settings: Settings
) -> dict[str, Judge]:
    """Return the judge of each suite of a run, by the suite's path in the run.

    A suite that is not among `suites` is judged by the tolerances that the run keeps.
    The only judge is also at "", for the cases of a baseline.

    Raises:
        ParityError: A suite's files are wrong, or the run does not keep its tolerances.

    """
    judges = {}
    for told in report.about["suites"]:
        path = told["path"]
        if path in suites:
            judges[path] = Judge.of(suites[path], settings)
            continue
        kept = Judge.recorded(report.path, told, settings)
        if kept is None:
            raise _no_suite(report, path, "and the run keeps no tolerances")
        judges[path] = kept
    if len(judges) == 1:
        judges[""] = next(iter(judges.values()))
    return judges


def as_judged(report: Report, settings: Settings) -> Settings:
    """Return the settings; where they name no tolerances, with those of the run."""
    if settings.tier or settings.changes:
        return settings
    tier, changes = report.about.get("tier"), report.about.get("changes")
    return replace(settings, tier=tier or "", changes=tuple(changes or ()))
